"""Load a model from any form the user may have it in."""
