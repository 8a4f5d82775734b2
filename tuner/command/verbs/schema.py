"""`quaver schema`: the JSON schema of YAML files."""

from __future__ import annotations

import argparse
import json
from typing import Any

from quaver.command.output import write_json

DESCRIPTION = """\
Print the JSON schema of YAML files. An editor completes and checks a file that names the schema in its first line:

  quaver schema > quaver.schema.json
  # yaml-language-server: $schema=quaver.schema.json
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "schema", help="print the JSON schema of YAML files", description=DESCRIPTION
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    from quaver.api.config.schema import json_schema

    write_json(json.dumps(json_schema(), indent=2))
    return 0
