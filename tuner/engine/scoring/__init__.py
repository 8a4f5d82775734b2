"""Call eval_func, parse its score and judge the trial."""
