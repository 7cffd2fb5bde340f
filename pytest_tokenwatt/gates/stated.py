"""What a record states without the parts that it was made of, as published reports and other tools do.

An error that such a record has no field for counts as 0, which every text says; one that is stored as null stays
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Reason
from pytest_tokenwatt.records.accuracy import LengthDelta, SuiteDelta
from pytest_tokenwatt.records.drift import PerplexityDelta
from pytest_tokenwatt.records.profiles import Ratio
from pytest_tokenwatt.records.stored import AnswerSample, StoredFigures

COUNTED_AS_0 = "error not stored, counted as 0"
"""Said wherever an error is taken for 0."""
SUBMISSION = "submission"
"""``StoredFigures.source`` of a leaderboard's record, which counts as having a score block."""


def is_null(config: ConfigRecord, *names: str) -> bool:
    """Whether any of these figures is stored as null."""
    return config.stored is not None and not set(names).isdisjoint(config.stored.unknown)


def lacks_error(config: ConfigRecord, error: float | None, *names: str) -> bool:
    """Whether a record has no field for an error, which the record of another tool may call by any of ``names``."""
    return error is None and config.stored is not None and not is_null(config, *names)


def same_source(candidate: ConfigRecord, baseline: ConfigRecord) -> bool:
    """Whether what one record states against a baseline is against this one: both come out of the same file.

    Against one that is invalid nothing is stated.
    """
    same = candidate.stored is not None and candidate.provenance == baseline.provenance
    return same and not (candidate.invalid or baseline.invalid)


def states(config: ConfigRecord) -> StoredFigures:
    """What a record states; nothing of one that has its parts."""
    return config.stored or StoredFigures(source="")


# --- serving


def confirmed(config: ConfigRecord, record: GoodputRecord) -> bool:
    """Whether there is a rate that passed; of other tools only its goodput may be known."""
    return record.rate_rps is not None or (config.stored is not None and record.goodput_tok_s is not None)


def stated_band_pct(records: Sequence[ConfigRecord]) -> list[float | None]:
    """The variance bands that reports state for all of their configurations together."""
    return [record.stored.band_pct for record in records if record.stored is not None]


# --- quality


def stated_delta(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> SuiteDelta | None:
    """A suite's difference as it is stored, in points; ``None`` where none is, or it is against another baseline."""
    value = states(candidate).delta_pts.get(name)
    if value is None or not same_source(candidate, baseline):
        return None
    told = states(candidate).suites.get(name, SuiteDelta())
    return replace(told, delta_pts=value, interval_pts=_ends(candidate, f"accuracy.{name}"))


def stated_length(candidate: ConfigRecord, baseline: ConfigRecord) -> LengthDelta | None:
    """The shift as it is stored, without the answers themselves that it is of."""
    shift = states(candidate).length_shift
    if shift is None or not same_source(candidate, baseline):
        return None
    interval = _ends(candidate, "length_shift")
    if interval is None and not is_null(candidate, "intervals.length_shift"):
        interval = (shift, shift)
    doubt = Reason("interval_unknown", "the interval of the shift is stored as null")
    sample = states(candidate).answers or AnswerSample(0)
    return LengthDelta(
        shift=shift,
        interval=interval,
        n=sample.n,
        truncated=sample.truncated,
        left_out=sample.left_out,
        doubts=() if interval else (doubt,),
    )


def stated_perplexity(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> PerplexityDelta | None:
    """A corpus as it is stored, without its windows."""
    found = states(candidate).perplexity.get(name)
    if found is None or not same_source(candidate, baseline):
        return None
    names = ("dnll_se", f"kl.ppl.{name}.dnll_se", f"ppl.{name}.dnll_se", f"perplexity.{name}.dnll_se")
    return replace(found, dnll_se=0.0) if lacks_error(candidate, found.dnll_se, *names) else found


def _ends(config: ConfigRecord, figure: str) -> tuple[float, float] | None:
    ends = states(config).intervals.get(figure, ())
    return (ends[0], ends[1]) if len(ends) == 2 else None


# --- ratios


def stated_ratio(found: Ratio, figure: str, candidate: ConfigRecord, *nulls: str) -> Ratio:
    """A ratio whose parts tell no error, with the one that is stored beside it, else with none, which it says.

    ``figure`` is its name in a report, ``nulls`` further names under which its error may be stored as null.
    """
    if found.value is None or found.error is not None or candidate.stored is None:
        return found
    ends = _ends(candidate, figure)
    if ends is not None and ends[0] + ends[1] > 0:
        # Of the ratio that the interval was stored for; this one may be to another baseline.
        return replace(found, error=found.value * abs((ends[1] - ends[0]) / (ends[1] + ends[0])), missing=None)
    if is_null(candidate, f"intervals.{figure}", *nulls):
        return found
    return replace(found, error=0.0, missing=COUNTED_AS_0)


def stated_mean_ratio(mean: Ratio, ratios: Mapping[str, Ratio], figure: str, candidate: ConfigRecord) -> Ratio:
    """The geometric mean of ``ratios``; the interval of the mean itself counts where it is stored."""
    if candidate.stored is None:
        return mean
    told = stated_ratio(replace(mean, error=None, missing=None), figure, candidate)
    if told.error is not None and told.missing is None:
        return told
    if told.error is None:
        return replace(mean, error=None)
    return replace(mean, missing=COUNTED_AS_0) if counted_as_0(ratios) and mean.error is not None else mean


def counted_as_0(ratios: Mapping[str, Ratio]) -> bool:
    """Whether the error of any of them is only taken for 0."""
    return any(ratio.missing == COUNTED_AS_0 for ratio in ratios.values())
