"""Convert each kind of record in a snapshot to builtins and back."""
