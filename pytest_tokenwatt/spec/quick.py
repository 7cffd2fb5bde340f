"""The limits of --tokenwatt-quick: enough to see that a spec works, too little to publish."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tokenwatt.spec.quality import Drift, Suite
from pytest_tokenwatt.spec.serving import PowerSource
from pytest_tokenwatt.spec.traffic import Measurement, Profile

WARMUP_S = 15.0
WINDOW_S = 60.0
PROBE_S = 30.0
REPEATS = 1
ITEMS = 50
SEQUENCES = 64
SAMPLING_HZ = 5.0


def quick_measurement(measurement: Measurement) -> Measurement:
    """At most 15 s warm-up, 60 s windows, 30 s probes, 1 repeat."""
    return measurement.model_copy(
        update={
            "warmup_s": min(measurement.warmup_s, WARMUP_S),
            "warmup_max_s": min(measurement.warmup_max_s, WARMUP_S),
            "window_s": min(measurement.window_s, WINDOW_S),
            "search_window_s": min(measurement.search_window_s, PROBE_S),
            "repeats": REPEATS,
        }
    )


def quick_power(sources: tuple[PowerSource, ...]) -> tuple[PowerSource, ...]:
    """Sampling at 5 Hz at least."""
    return tuple(source.model_copy(update={"sampling_hz": max(source.sampling_hz, SAMPLING_HZ)}) for source in sources)


def quick_suites(suites: tuple[Suite, ...]) -> tuple[Suite, ...]:
    """At most 50 items, asked once."""
    return tuple(suite.model_copy(update={"limit": min(suite.limit, ITEMS), "seeds": REPEATS}) for suite in suites)


def quick_drift(drift: Drift | None) -> Drift | None:
    """At most 64 sequences."""
    return drift and drift.model_copy(update={"sequences": min(drift.sequences, SEQUENCES)})


def quick_profiles(profiles: Mapping[str, Profile]) -> dict[str, Profile]:
    """One repeat."""
    return {name: profile.model_copy(update={"repeats": REPEATS}) for name, profile in profiles.items()}
