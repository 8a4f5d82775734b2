"""The constants of `auto` and of the steps that it shares with other strategies, each with its source.

Sources: benchmarks/simulation.py counts evaluations on simulated models (docs/strategies.md holds its tables);
benchmarks/remedies.py tunes real models with each step of `auto` switched off in turn; benchmarks/budgets.py and
benchmarks/repairs.py do the same for target budgets and repairs. "Judgement" marks a value that no benchmark varied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTuning:
    """The constants of a search. They are not settings: the simulated sweep of the tests counts trials at these."""

    # --- Differences that count -----------------------------------------------------------------------------------
    # An output error must fall below this part of another to be clearly less. Judgement: errors of a few calibration
    # samples repeat to a few percent.
    clearly_less_error: float = 0.9
    # The same for a change of how all ops run, which is a larger risk. Judgement.
    far_less_error: float = 0.7
    # A time must fall below this part of another to be clearly faster. Judgement: twice the error bar of a latency.
    clearly_faster: float = 0.95
    # Times up to this factor apart are tied: an error bar of 1 % for each of the two.
    tie: float = 1.02
    # The error bar of a measured latency: measuring ends when two halves of the runs differ by half a percent.
    error_bar: float = 0.01
    # Errors and times below this do not matter; it keeps logarithms and quotients finite.
    tiny: float = 1e-12

    # --- Initial configuration ------------------------------------------------------------------------------------
    # A configuration is as fast as the fastest only within this part of the time that the fastest saves. Judgement:
    # where little is gained, a tie of 2 % may be all of it.
    tie_share_of_gain: float = 0.25
    # If the fastest configuration takes more than this part of the fp32 time, noise of a percent or two would choose
    # between those that are tied. Judgement: five error bars.
    little_gain: float = 0.95
    # Then times up to this factor apart are tied: figures of small models repeat to two percent on a busy machine.
    tie_of_little_gain: float = 1.03
    # A repair that brings the error clearly down may take up to this many times as long before that counts. Judgement:
    # figures of a model of 25 microseconds on a busy machine repeat to 2 %.
    clear_tie: float = 1.03
    # Ops save as much as another one within this part of what that saves, or this part of the model's time. Judgement:
    # times of equal ops in one profile differ by up to a fifth.
    equal_gain: float = 0.25
    least_gain: float = 0.002
    # The costs of conversions are multiplied by this to find configurations with few of them, because an fp32 op among
    # quantized ones may lose more than the conversion takes. Judgement.
    cautious_cost_factor: float = 4.0
    # Configurations that quantize only the n/4 and n/16 ops that save most are tried, too. Judgement.
    few_ops_parts: tuple[int, ...] = (4, 16)
    # A second calibration is worth a trial if its output error is within this factor of the best one's. Judgement.
    comparable_error_factor: float = 4.0

    # --- Repairs --------------------------------------------------------------------------------------------------
    # A repair that may take time must bring the error of the ops by themselves to this part. benchmarks/repairs.py
    # shows what repairs bring; the value is a judgement.
    repair_error: float = 0.5
    # The fewest repairs are made that bring this part of what all of them bring: each may take time. Judgement.
    repair_share: float = 0.9

    # --- Other choices for sensitive ops --------------------------------------------------------------------------
    # Another choice must have this part of the sensitivity at most, because it gives up time. Judgement.
    clearly_less_sensitivity: float = 0.5
    # Ops are considered, the most sensitive first, until they have this part of the total sensitivity...
    suspect_share: float = 0.98
    # ... and no more than this many of them: each costs a session for each family of choices. Judgement.
    max_suspects: int = 48

    # --- Latency/error Pareto front -------------------------------------------------------------------------------
    # Prices of sensitivity that are tried to draw the front: a cut takes only milliseconds.
    prices: int = 64
    # A point of the front has at most this part of the sensitivity of the point before. Judgement.
    front_step: float = 0.97
    # Points of the front, and prefixes of the ranking, whose output error is computed. Judgement: a session each.
    front_points: int = 12
    # The smallest part of the gain that a step gives up; it doubles with each trial that fails. benchmarks/remedies.py
    # compares the search along the front with none.
    first_step: float = 1 / 64
    # After a trial that fails, the next one aims at this part of the error that should be enough. Judgement.
    aim: float = 0.8
    # A loss of at most three times what is allowed is a near miss...
    near_miss: float = 1 / 3
    # ... after which the first step gives up at most this part of the gain. benchmarks/remedies.py was run for it.
    near_miss_max_cost: float = 1 / 8
    # After a near miss this many trials may go to configurations that are only about as good. Judgement.
    near_miss_chances: int = 2
    # If no candidate costs that little, those up to this many times the cheapest are taken. Judgement.
    near_miss_cost_factor: float = 1.25
    # A configuration predicted below this part of the fp32 time may turn out no slower than fp32 when measured.
    may_be_as_fast: float = 1.25
    # "No slower than fp32" allows for the error bars of both measurements.
    as_fast: float = 1.02
    # Trials along the front; after as many failures the output error is no guide to the loss. Judgement.
    max_front_trials: int = 6
    # The part of its time that an op must save in fp32 before it falls back lies in this range, at one of this many
    # values: the one around which the answer is most stable. Judgement.
    doubt_range: tuple[float, float] = (0.04, 0.4)
    doubt_values: int = 19
    # This part of the whole model's time counts as if it were the op's own, so that tiny ops need a reason too.
    doubt_share_of_model: float = 0.003

    # --- Search along a ranking -----------------------------------------------------------------------------------
    # A step along a ranking helps if it brings the loss below this part of the one before. benchmarks/simulation.py
    # counts the cost of rankings that are right, weak or useless.
    helpful_step: float = 0.9
    # After this many steps that did not help, the ranking is not followed: a useless one costs two trials.
    max_doubts: int = 2
    # Searches for an op that must fall back although it ranks last, and so hides at the end. Judgement.
    max_searches: int = 5
    # With several workers, independent configurations are asked for in lists of this many times the width, so that
    # nobody waits for the slowest of a list. Judgement.
    prefetch: int = 4

    # --- Float precision ------------------------------------------------------------------------------------------
    # After this many trials without success, the all-bf16 model is tried although others are faster. Judgement: bf16
    # met a loss of 1 % on 12 of 13 models.
    max_trials_before_bf16: int = 4

    # --- After the first success ----------------------------------------------------------------------------------
    # Another quantized choice replaces fp32 only with this part of the error that the fallback removed. Judgement.
    replacement_error: float = 0.25
    # Moves of either kind whose time is measured to save conversions: each costs a measurement of the whole model.
    max_boundary_moves: int = 16
    # Trials of such moves.
    max_boundary_trials: int = 4

    # --- A success that is not faster than fp32 -------------------------------------------------------------------
    # The costs of conversions are multiplied by these to find few and large parts in int8. Judgement.
    gain_cost_factors: tuple[float, ...] = (1.0, 4.0, 16.0)
    # Candidates that are timed, interleaved; those that are predicted to be fastest. Judgement: a few seconds.
    max_gain_candidates: int = 12
    # The first half of the trials goes to candidates that save this part of what the fastest one saves. Judgement.
    worthwhile_gain: float = 0.25
    # Trials of such candidates. Judgement: they come after a success, so they only cost evaluations.
    max_gain_trials: int = 4

    # --- Several workers ------------------------------------------------------------------------------------------
    # The largest number of prefix lengths or steps tried at once; more would cost trials and end no sooner, because a
    # search among n ops takes log(n) / log(width + 1) rounds.
    max_width: int = 8

    # --- Weights of fewer bits ------------------------------------------------------------------------------------
    # Points whose output error is computed from either end of the line between 8 bits and fewer. Judgement.
    narrow_points: int = 8
    # Trials of such points. Judgement.
    max_narrow_trials: int = 4
    # Fewer bits are as good as 8 if the output error is within this factor. Judgement.
    as_good_as_8_bits: float = 1.1
    # Fewer bits that save less than this part of the file are worth no trial of their own. Judgement.
    worthwhile_saving: float = 0.1
    # With several workers each further point has this part of the error of the one before. Judgement.
    narrow_error_step: float = 0.5

    # --- Weights of language models -------------------------------------------------------------------------------
    # The divergence of a trial, as a part of that which should be just enough. Judgement: text varies by more.
    aim_of_divergence: float = 0.95
    # The largest divergence of a first trial, for criteria that allow much. Judgement: a loss of 10 % of perplexity.
    max_first_divergence: float = 0.1
    # A trial says that the next one may have up to this many times its divergence, or as small a part. Judgement.
    max_step: float = 4.0
    # After a success, a trial is worth making for this many times its divergence at least. Judgement: 1 % of the bytes.
    least_step: float = 1.05
    # A built model is near the divergence that is wanted within this part. Judgement: text differs more.
    near_divergence: float = 0.93
    # Models that are built to come near a divergence. Judgement: each costs a session.
    max_built_for_trial: int = 4
    # Corrections of the bytes of a budget. Each takes what the last one was over, so two are usual.
    max_size_corrections: int = 8
    # Trials of one search for the smallest model.
    max_weight_trials: int = 5

    # --- Target budgets (benchmarks/budgets.py) -------------------------------------------------------------------
    # Configurations of the least predicted error whose latency is measured, all interleaved.
    max_budget_candidates: int = 10
    # Predictions may be off: if fewer than `enough_within_budget` configurations keep the budget when they are
    # measured, others are built that should take these shares of it.
    budget_shares: tuple[float, ...] = (1.0, 0.93, 0.85)
    enough_within_budget: int = 3
    # Trials within a budget.
    max_budget_trials: int = 8
    # Sums of predicted times may exceed a budget by this factor: the rounding of floats.
    rounding: float = 1 + 1e-9


TUNING = AutoTuning()
