"""`quaver card`: the model card and the manifest of a run's best model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from quaver.command import sentences
from quaver.errors import SettingsError
from quaver.files.paths import expanded

DESCRIPTION = """\
Write the model card of a run's best model in the layout of Hugging Face: scores in fp32 and int8 as metadata, the
criterion, the confidence, the latency with its machine, how to run the model and how to reproduce it. A manifest holds
hashes, versions and commands as JSON; `quaver check --manifest` verifies it on another machine.

  quaver card quaver_workspace/RUN -o README.md
  quaver card RUN --model publish/model-int8.onnx -o publish/README.md --manifest publish/manifest.json
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "card", help="write the model card and the manifest of a run", description=DESCRIPTION
    )
    parser.add_argument("run", metavar="RUN", help="a workspace, or its history.snapshot")
    parser.add_argument("-o", "--output", metavar="OUT", help="path of the card, such as README.md (default: stdout)")
    parser.add_argument(
        "--model", metavar="FILE", help="the saved model that is published (default: the best model in the workspace)"
    )
    parser.add_argument("--manifest", metavar="FILE", help="also write the manifest; its file names are relative to it")
    parser.add_argument("--name", metavar="NAME", help="name of the model (default: that of its file)")
    parser.add_argument("--task", metavar="TASK", help="the task in the words of Hugging Face: image-classification")
    parser.add_argument("--dataset", metavar="NAME", help="the data that the scores were measured on")
    parser.add_argument("--license", metavar="NAME", help="the license of the model, such as apache-2.0")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the card and the manifest."""
    from quaver.api.manifest import best_of, manifest, write_manifest
    from quaver.files.atomic import write_safely
    from quaver.insights.card import CardOptions, model_card, published_commands
    from quaver.insights.data.run_reader import FollowedRun

    snapshot, _, best_path = best_of(args.run)
    model = best_path if args.model is None else Path(expanded(args.model))
    if not model.is_file():
        raise SettingsError(f"no model at {str(model)!r}")
    given = {name: getattr(args, name) for name in ("name", "task", "dataset", "license") if getattr(args, name)}
    place = None if args.manifest is None else Path(expanded(args.manifest))
    options = CardOptions(**given, manifest="" if place is None else place.name)
    if place is not None:
        data = FollowedRun(snapshot.path.parent).poll()
        commands = {} if data is None else published_commands(data, model)
        write_manifest(place, manifest(args.run, model, place.absolute().parent, commands))
        print(f"the manifest is in {sentences.path(place.absolute())}")
    card = model_card(args.run, model, options)
    if args.output is None:
        print(card, end="")
    else:
        write_safely(Path(expanded(args.output)), [card.encode()])
        print(f"the card is in {sentences.path(Path(expanded(args.output)).absolute())}")
    return 0
