"""The commands, one module each: `add` declares the arguments, `run` executes. New modules are found automatically."""
