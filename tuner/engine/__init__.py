"""The engine of a run: the loop and its judge, evaluation, probing, events."""
