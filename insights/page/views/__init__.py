"""The views of the page, one a file: what each shows of a run."""
