"""The commands, a file each: `add` describes it, `run` does it. A new one is found by being here."""
