"""Show a run and its result in a terminal, a notebook or plain text."""
