"""Whether an engine's gauges were read often enough during a run for their largest reading to be a peak."""

from __future__ import annotations

from pytest_tokenwatt.records.profiles import EnginePeaks

LEAST_HZ = 2.0
LONGEST_GAP_S = 1.0
"""Twice the interval at the least rate: one reading that a busy machine leaves out is no gap."""
_LEAST_READINGS = 3


def polled_too_slowly(peaks: EnginePeaks) -> str | None:
    """Why the largest readings may not be peaks, in one line with the rate reached; ``None`` where they are.

    Over the whole time watched there must be ``LEAST_HZ`` readings a second (less one, for its ends) and three at
    least, and nowhere more than ``LONGEST_GAP_S``, or a twentieth of the time, without one. ``None`` as well where the
    time is not known, as in older records.
    """
    seconds, gap = peaks.seconds, peaks.longest_gap_s
    if seconds is None or seconds <= 0 or not peaks.readings:
        return None
    rate = f"metrics came {peaks.readings} times in {seconds:.1f} s ({peaks.readings / seconds:.2g} a second"
    if peaks.readings < _LEAST_READINGS:
        return f"{rate}): too few to see a peak"
    if peaks.readings < LEAST_HZ * seconds - 1.0:
        return f"{rate}, {LEAST_HZ:g} are needed): a short peak may be missed"
    if gap is not None and gap > max(LONGEST_GAP_S, seconds / 20.0):
        return f"{rate}), once none for {gap:.2g} s: a short peak may be missed"
    return None
