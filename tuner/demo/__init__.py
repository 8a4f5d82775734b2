"""The demo: a small network that int8 does not suit, and how quaver deals with it."""
