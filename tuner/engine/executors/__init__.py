"""Executors: evaluate trials in this process, in worker processes of this machine, or on a cluster."""
