"""Steps that strategies share: generators for `yield from`, and functions that choose without labels."""
