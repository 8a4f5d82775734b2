"""What drives a run: the loop and its judge, evaluation, probing, events."""
