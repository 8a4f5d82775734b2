"""Find the ops of a model and the choices of each."""
