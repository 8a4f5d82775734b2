"""Run built models: sessions, the models that eval_func gets, calibration, and a runner for emulated processors."""
