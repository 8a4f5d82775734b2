"""The command line: one file a command, each with `add(subparsers)` and `run(args)`."""
