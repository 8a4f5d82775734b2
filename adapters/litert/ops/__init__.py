"""Find the ops that a user can toggle."""
