"""The report: all views of one run in one file, which needs no server and no network. Its tables need no JavaScript."""
