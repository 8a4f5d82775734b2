"""`quaver tune`: find the best int8 configuration of a model."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from quaver.command import flags, metric, sentences, user_files
from quaver.command.output import warnings_shown
from quaver.errors import SettingsError
from quaver.files.paths import expanded

DESCRIPTION = """\
Find which ops of a model can run in int8, and save the best model that meets the accuracy criterion. If none meets it,
nothing is written to OUT; the most accurate model is in the workspace.

  quaver tune --model model.onnx --calib calib.npz --eval my_eval.py:accuracy -o model-int8.onnx
  quaver tune conf.yaml --model model.onnx --calib calib/ --eval my_eval.py:accuracy --max-trials 20
  quaver tune --model model.onnx --calib data.py:batches --eval my_eval.py:wer --lower-is-better --absolute 0.2
  quaver tune --model model.onnx --calib calib.npy --eval my_eval.py:accuracy --strategy my.py:WorstFirst \\
      --op-type Softmax=fp32 --op-name '/head/.*=fp32'
  quaver tune --model model.onnx --calib calib.npz --metric top1 --data test.npz --labels y.npy -o model-int8.onnx
  quaver tune --model model.onnx --calib calib.npz --metric agreement -o model-int8.onnx    no labels, no code
  quaver tune --model model.onnx --eval my_eval.py:accuracy --resume quaver_workspace/2025-01-31_12-00-00
  quaver tune --model model.onnx --calib calib.npz -o model-int8.onnx     # not evaluated, chosen without labels
  quaver tune decoder/ --calib train.txt --metric perplexity --data test.txt --relative 2%% --objective size -o small/

my_eval.py defines a function of the model that returns the score:

  def accuracy(model):
      return float((model(images).argmax(axis=1) == labels).mean())
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "tune",
        help="find the best int8 configuration of a model",
        description=DESCRIPTION,
        usage="quaver tune [CONF.yaml | FOLDER] --model MODEL [--calib DATA] [--eval FILE.py:FUNCTION | --metric NAME] "
        "[-o OUT] [options]",
        epilog="exit codes: 0 the criterion is met, or nothing was evaluated; 3 it is not met; 2 wrong usage; "
        "130 interrupted without a result.",
    )
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONF.yaml | FOLDER",
        help="settings, which flags override; or the folder of a float model, in place of --model",
    )
    parser.add_argument("--model", metavar="MODEL", help="the float model")
    parser.add_argument(
        "--calib",
        metavar="DATA",
        help="calibration data without labels: an .npz (arrays by input name) or .npy, a folder of them (each a "
        "batch), or FILE.py:NAME of a dataloader or of a function that returns one; a .txt for a folder of "
        "onnxruntime-genai. Without it ops run in dynamic or "
        "weight-only mode, where they can",
    )
    parser.add_argument(
        "--confirm",
        metavar="FILE.py:FUNCTION",
        help="a second function on held-out data: it scores the winner, and the next best trial if the winner misses "
        "the criterion there",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where to save the best model, if it meets the criterion")
    parser.add_argument("--save-anyway", action="store_true", help="write OUT even if no model meets the criterion")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    parser.add_argument(
        "--track",
        metavar="TRACKER",
        action="append",
        help="log every trial to a tracker: mlflow, wandb or tensorboard, each an extra of that name; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, without progress")
    metric.add(parser, "by default those of --calib; other data are a better test")
    flags.add(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Tune the model and print the summary."""
    if args.model is None and args.config is not None and os.path.isdir(expanded(args.config)):
        args.model, args.config = args.config, None
    settings = flags.parse_settings(args)
    config = settings.config
    if args.model is None:
        raise SettingsError("pass the float model, such as --model model.onnx")
    output = flags.check_output(args.output, args.model)
    if args.save_anyway and output is None:
        raise SettingsError("--save-anyway needs -o, the path to save the model to")
    eval_func = metric.eval_func(args, args.calib) if metric.has_metric(args) else None
    settings = settings.with_changes(metric.direction(args, eval_func))
    confirm = None if args.confirm is None else user_files.load_function(args.confirm, "--confirm")
    data = None if args.calib is None else user_files.calibration(args.calib, model=args.model)

    import quaver
    from quaver.api.display.choose import print_warnings
    from quaver.api.fit import TuneRequest, tune
    from quaver.command import json_records, summary
    from quaver.insights.trackers import make_tracker

    trackers = [make_tracker(name) for name in args.track or ()]

    quiet = args.quiet or args.json
    begin = time.monotonic()
    with warnings_shown():
        request = TuneRequest(
            args.model,
            settings.resolved,
            calib_dataloader=data,
            eval_func=eval_func,
            confirm=confirm,
            observer=[*trackers, print_warnings] if quiet else trackers,
            verbose=0 if quiet else None,
        )
        result = tune(request)
        saved = None
        if output is not None and result.best is not None and (result.met is not False or args.save_anyway):
            saved = result.save(output)
    paths = summary.FilePaths(args.model, output, saved, args.calib)
    again = partial(again_with, args.argv, "--resume", result.workspace)
    if args.json:
        json_records.print_json(
            {"model": args.model, "saved": saved and str(saved), **json_records.result_to_dict(result)}
        )
    else:
        summary.write(result, config, time.monotonic() - begin, paths, again)
    if result.best is None and result.reason is quaver.StopReason.INTERRUPTED:
        return 130
    return 3 if result.met is False else 0


def again_with(argv: Sequence[str], *changes: Any) -> str:
    """Return the command line with other values for some flags, passed as flag, value, flag, value, ..."""
    replaced = {*map(str, changes[::2]), "--workspace"}
    words: list[str] = []
    arguments = iter(argv)
    for word in arguments:
        if word in replaced:
            next(arguments, None)
        elif word.split("=")[0] not in replaced:
            words.append(word)
    return sentences.command("quaver", *words, *changes)
