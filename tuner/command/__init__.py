"""The command line: one file per command, each with `add(subparsers)` and `run(args)`."""
