"""Build the model of a trial from a configuration."""
