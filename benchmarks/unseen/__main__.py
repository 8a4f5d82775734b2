"""Prepares the models and shows what they are: `python -m benchmarks.unseen [NAME...]`."""

from __future__ import annotations

import sys

from benchmarks.models.__main__ import main
from benchmarks.unseen import REGISTRY

if __name__ == "__main__":
    sys.exit(min(1, main(registry=REGISTRY)))
