"""The kinds of records in a snapshot, as builtins and back."""
