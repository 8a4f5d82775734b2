"""The settings of a run: validation, loading from YAML, serialization and resume."""
