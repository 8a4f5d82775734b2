"""Run models and calibrate them."""
