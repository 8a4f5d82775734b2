"""Show a result in a notebook, as HTML and as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from quaver import formatting
from quaver.formatting import last_line, op_counts, score
from quaver.trial import Trial
from quaver.types import PlainDict

if TYPE_CHECKING:
    from quaver.api.result import TuneResult

# Trials that are shown; `to_dataframe` has all. Judgement: they fit on a screen.
SHOWN = 20
_CARD = "border: 1px solid #d1d5db; border-radius: 8px; padding: 4px 16px; display: inline-block"
_MET, _BAD = "#00734f", "#b3450b"
# The beginning of each warning in a printed result.
WARNED = "WARNING: "


def trial_rows(trials: Sequence[Trial]) -> list[PlainDict]:
    """Return a row for each trial, all with the same columns."""
    precisions = sorted({precision for trial in trials for precision in trial.config.counts})
    figures = dict.fromkeys(name for trial in trials for name in trial.measured)
    metrics = dict.fromkeys(name for trial in trials for name in trial.metrics)
    sampled = any(trial.samples for trial in trials)
    return [
        {
            "number": trial.number,
            "score": trial.score,
            **{name: trial.metrics.get(name) for name in metrics},
            "loss": trial.loss,
            **({"loss_low": trial.interval and trial.interval[0]} if sampled else {}),
            **({"loss_high": trial.interval and trial.interval[1], "samples": trial.seen} if sampled else {}),
            "met": trial.met,
            "state": str(trial.state),
            **{f"{precision}_ops": trial.config.counts.get(precision, 0) for precision in precisions},
            "seconds": trial.seconds,
            "build_seconds": trial.build_seconds,
            "size": trial.model_size,
            **{name: trial.measured.get(name) for name in figures},
            "error": last_line(trial.error),
        }
        for trial in trials
    ]


def as_html(result: TuneResult) -> str:
    """Return the verdict, the scores and the trials as HTML."""

    def loss(trial: Trial) -> str:
        return formatting.loss(trial.loss, result.criterion)

    def row(trial: Trial) -> list[str]:
        verdict = last_line(trial.error) if trial.failed else formatting.verdict(trial)
        best = result.best is not None and trial.number == result.best.number
        return [
            f"{trial.number}{' (best)' if best else ''}",
            score(trial.score),
            loss(trial),
            verdict,
            op_counts(trial),
        ]

    shown = [["fp32", score(result.baseline), "-", "-", "-"], *map(row, result.trials[:SHOWN])]
    more = len(result.trials) - SHOWN
    left = f"<p>... and {more} more; <code>to_dataframe()</code> has all</p>" if more > 0 else ""
    verdict, *facts = str(result).splitlines()
    plain_success = result.met and not result.warnings
    warned = {WARNED + text for text in result.warnings}
    return "".join(
        [
            f'<div style="{_CARD}"><p style="color: {_MET if plain_success else _BAD}"><b>{escape(verdict)}</b></p>',
            *(f'<p style="color: {_BAD}"><b>{escape(fact)}</b></p>' for fact in facts if fact in warned),
            *(f"<p>{escape(fact)}</p>" for fact in facts if fact not in warned),
            "<table><thead>",
            *_cells("th", ["trial", "score", "loss", "verdict", "ops"]),
            "</thead><tbody>",
            *(part for cells in shown for part in _cells("td", cells)),
            f"</tbody></table>{left}<p>{escape(str(result.workspace))}</p></div>",
        ]
    )


def _cells(tag: str, texts: Iterable[str]) -> Iterator[str]:
    yield "<tr>"
    for text in texts:
        yield f"<{tag}>{escape(text)}</{tag}>"
    yield "</tr>"
