"""Speed, memory and score in the sentences of a summary: only what was measured, and beyond its error."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.records.profiles import MemoryDelta, Ratio, ScoreDelta, SpeedDelta
from pytest_tokenwatt.report.text import change, listing
from pytest_tokenwatt.report.told import finite

_BETTER, _WORSE, _UNCLEAR, _UNSURE = "improved", "worsened", "made no measurable difference to", "showed"
_Z = 1.96
"""Standard errors of a 95 % half-width."""


def gain_words(speeds: SpeedDelta | None, memories: MemoryDelta | None) -> Iterator[str]:
    """Phrases such as "improved speed 35.1 % (± 1.2 %) and memory 78.4 % (± 0.5 %)"."""
    ratios = {"speed": speeds.overall if speeds else None, "memory": memories.overall if memories else None}
    said = [_worded(axis, ratio) for axis, ratio in ratios.items() if ratio is not None]
    for verb in (_BETTER, _WORSE, _UNCLEAR, _UNSURE):
        if words := [phrase for spoken, phrase in said if spoken == verb]:
            yield f"{verb} {listing(words)}"


def _worded(axis: str, ratio: Ratio) -> tuple[str, str]:
    """The verb, and what it improved, worsened, or did not change; two empty words without a figure."""
    value, error = finite(ratio.value), finite(ratio.error)
    if value is None:
        return "", ""
    if error is None:
        return _UNSURE, f"{change(value)} {axis} with an unknown error"
    width = f"± {100 * error:.1f} %" if error or ratio.missing is None else "without a stored error"
    if abs(value - 1) <= error:
        return _UNCLEAR, f"{axis} ({change(value)} {width})"
    return _BETTER if value > 1 else _WORSE, f"{axis} {100 * abs(value - 1):.1f} % ({width})"


def score_words(delta: ScoreDelta | None) -> Iterator[str]:
    """That a configuration qualifies, with its score; of others the gates say what they failed."""
    score = finite(delta.score) if delta else None
    if delta is None or not delta.qualified or score is None:
        return
    error = finite(delta.score_se)
    width = f" (± {_Z * error:.3f})" if error is not None else ""
    tier = f" in tier {delta.tier}" if delta.tier else ""
    yield f"qualified{tier} with a score of {score:.3f}{width}"
