"""The report: all views of one run in one file, which needs no server, no network, and for its tables no JavaScript."""
