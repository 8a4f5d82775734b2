"""Flags that choose how a model is scored: the user's function, or a ready-made metric and its data."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quaver.command import flags, user_files
from quaver.errors import SettingsError
from quaver.files.paths import check_regular, expanded
from quaver.types import PlainDict


def add(parser: argparse.ArgumentParser, without_data: str) -> None:
    """Add --eval and the flags of metrics; `without_data` describes the default of --data."""
    group = parser.add_argument_group("how to score a model")
    group.add_argument("--eval", metavar="FILE.py:FUNCTION", help="the function that scores a model")
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="a ready-made metric instead: top1, top5, f1, auc, miou, ctc_exact, cer, recall@1; or, without labels, "
        "agreement (with the fp32 model), agreement_cosine, agreement_sqnr, and for language models perplexity, "
        "kl_divergence and same_top_token",
    )
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="labels for --metric, one per sample: .npy, .npz, or a text file with one per line",
    )
    group.add_argument(
        "--data", metavar="DATA", help=f"samples for --metric, in the formats of --calib; {without_data}"
    )
    group.add_argument(
        "--metric-option",
        metavar="KEY=VALUE",
        type=flags.pair("KEY=VALUE", str.partition),
        action="append",
        default=[],
        help="an option of the metric with its value in YAML, such as k=3 or output=1; repeatable",
    )


def has_metric(args: argparse.Namespace) -> bool:
    """Return True if a flag says how to score a model."""
    return any(getattr(args, flag) is not None for flag in ("eval", "metric", "labels", "data"))


def eval_func(args: argparse.Namespace, calib: str | None = None) -> Callable[[Any], Any]:
    """Return the eval_func; a metric without data uses the samples of `calib`."""
    if (args.eval is None) == (args.metric is None):
        if args.eval is not None:
            raise SettingsError("pass --eval or --metric, not both")
        raise SettingsError(
            "pass --eval, a function that scores a model, such as --eval my_eval.py:accuracy; or a ready-made metric, "
            "such as --metric top1"
        )
    if args.eval is not None:
        for flag in ("labels", "data"):
            if getattr(args, flag) is not None:
                raise SettingsError(f"--{flag} belongs to --metric; the function of --eval has its own data")
        return user_files.load_function(args.eval, "--eval")
    place = args.data or calib
    if place is None:
        raise SettingsError("--metric needs --data: the samples to score, such as --data test.npz")
    from quaver.metrics import make_metric

    labels = None if args.labels is None else _labels(args.labels)
    data = user_files.calibration(place, "--data" if args.data else "--calib", getattr(args, "model", None))
    return make_metric(args.metric, data, labels, **dict(args.metric_option))


def direction(args: argparse.Namespace, metric: Any) -> PlainDict:
    """Return the direction of a ready-made metric, unless a flag sets it."""
    if args.metric is None or args.higher_is_better is not None or metric.higher_is_better:
        return {}
    return {"higher_is_better": False}


def _labels(text: str) -> Any:
    path = Path(expanded(text))
    check_regular(path, "--labels: the labels")
    if not path.is_file():
        raise SettingsError(f"--labels: there is no file {text!r}")
    if path.suffix in (".npy", ".npz"):
        labels = user_files.read_arrays(path, "--labels")
        if isinstance(labels, dict):
            names = ", ".join(map(repr, labels))
            raise SettingsError(f"--labels: {text!r} holds several arrays ({names}): save one of them alone")
        return labels
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return np.array([int(line) for line in lines])
    except ValueError:
        return lines
