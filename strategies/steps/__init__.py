"""Steps that several strategies are made of; each is used with `yield from` or asked before the first trial."""
