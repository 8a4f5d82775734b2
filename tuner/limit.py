"""The limit of one metric's loss against the fp32 baseline: a pure function of baseline and score."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import SettingsError
from quaver.scores import UNNAMED

# The error of subtracting two scores, as a part of the larger one: far above that of a float, far below any loss.
NOISE = 1e-12


@dataclass(frozen=True, slots=True)
class Limit:
    """The allowed loss of one metric, on all samples or on a slice of them.

    Attributes:
        allowed: the allowed loss.
        relative: True if losses are fractions of the baseline, False if they are in units of the score.
        higher_is_better: False for scores like perplexity or word error rate.
        metric: the name of the metric; "score" if eval_func gives no names.
        slice: the name of the slice; empty for all samples.
        binding: False where a target budget decides and a search only aims at the limit. Then a loss from 0 counts as
            one from 1.
    """

    allowed: float
    relative: bool = True
    higher_is_better: bool = True
    metric: str = UNNAMED
    slice: str = ""
    binding: bool = True

    @property
    def name(self) -> str:
        """The name that users read: `top1`, `top1 of cats`, or empty for a score without a name."""
        metric = "" if self.metric == UNNAMED else self.metric
        return f"{metric or 'score'} of {self.slice}" if self.slice else metric

    def defined(self, baseline: float) -> bool:
        """Return True if a loss from this baseline is defined: a relative loss from zero is not."""
        return not self.relative or not self.binding or baseline != 0

    def check_baseline(self, baseline: float) -> None:
        """Refuse a relative loss from zero, which is not defined, before any trial is run."""
        if not self.defined(baseline):
            of = f" ({self.name})" if self.name else ""
            instead = " or leave that slice out of `slice_limit`" if self.slice else ""
            raise SettingsError(
                f"the fp32 model scores 0{of}, so a relative criterion has no meaning. If 0 is right, use "
                f"`absolute=` instead of `relative=`{instead}; if not, eval_func is probably at fault (labels, "
                "preprocessing)"
            )

    def loss(self, baseline: float, score: float) -> float:
        """Return the loss of `score`; negative if it is better."""
        self.check_baseline(baseline)
        drop = self._drop(baseline, score)
        return drop / (abs(baseline) or 1.0) if self.relative else drop

    def met(self, baseline: float, score: float) -> bool:
        """Return True if the loss is allowed. Float noise of the subtraction is tolerated."""
        self.check_baseline(baseline)
        allowed = self.allowed * abs(baseline) if self.relative else self.allowed
        return self._drop(baseline, score) <= allowed + NOISE * max(abs(baseline), abs(score))

    def _drop(self, baseline: float, score: float) -> float:
        return baseline - score if self.higher_is_better else score - baseline

    def better(self, score: float, than: float) -> bool:
        """Return True if one score is better than another."""
        return score > than if self.higher_is_better else score < than

    def __str__(self) -> str:
        sign = "loss" if self.higher_is_better else "loss (lower is better)"
        of = f"{self.name}: " if self.name else ""
        return f"{of}{sign} of at most {f'{self.allowed:.2%}' if self.relative else self.allowed}"


def loss_text(loss: float, relative: bool) -> str:
    """Return a loss as a table shows it: "0.87%", or "0.87% better" where the score is above the float model's.

    Args:
        loss: the loss; negative where the score is better.
        relative: whether it is a fraction of the baseline, and not in units of the score.
    """
    amount, is_gain = _amount(loss, relative)
    return f"{amount} better" if is_gain else amount


def loss_phrase(loss: float, relative: bool) -> str:
    """Return a loss with its name: "loss 0.87%", or "gain 0.87%" where the score is above the float model's."""
    amount, is_gain = _amount(loss, relative)
    return f"{'gain' if is_gain else 'loss'} {amount}"


def loss_range(low: float, high: float, relative: bool) -> str:
    """Return an interval of the loss: "0.10% to 1.63%", "0.42% better to 1.63% worse" or "1.20% to 0.42% better"."""
    (best, best_is_gain), (worst, worst_is_gain) = _amount(low, relative), _amount(high, relative)
    if not best_is_gain:
        return f"{best} to {worst}"
    return f"{best} to {worst} better" if worst_is_gain else f"{best} better to {worst} worse"


def _amount(loss: float, relative: bool) -> tuple[str, bool]:
    """Return the size of a loss, and whether it is a gain. What rounds to zero is neither."""
    amount = f"{abs(loss):.2%}" if relative else f"{abs(loss):.4g}"
    return amount, loss < 0 and any(digit in "123456789" for digit in amount.partition("e")[0])
