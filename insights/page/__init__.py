"""The live page: a server on this machine that reads runs and can change nothing."""
