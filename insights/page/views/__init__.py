"""The views of the page: what each shows of a run."""
