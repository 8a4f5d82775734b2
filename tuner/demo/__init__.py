"""The demo: a small network that loses too much accuracy in int8, and how quaver tunes it."""
