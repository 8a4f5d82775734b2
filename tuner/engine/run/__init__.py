"""One tuning run: which trial comes next, what is recorded, and when it ends."""
