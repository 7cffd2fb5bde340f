"""Closed-loop profiles of a configuration: rates, peaks, repeats and reruns as reports and submissions state them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import BudgetRun, EnginePeaks, PeakMemory, ProfileRecord, ProfileRun
from pytest_tokenwatt.spec.traffic import ONLINE_SLO
from pytest_tokenwatt.store.replay.contradiction import CODE
from pytest_tokenwatt.store.replay.fields import Fields

_PARTS = ("weights_gib", "kv_gib", "other_gib")
_ROUNDED_GIB = 0.0016
"""Three parts and their sum, each rounded to 0.001 GiB, may differ by so much."""
_MEMORY = (*_PARTS, "peak_gib", "kv_usage", "kv_bytes_per_token", "device_peak_gib", "error")
_RUN = ("held_share", "client_cpu_share", "ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms")
_PEAKS = ("kv_usage", "running", "preemptions", "device_gib", "seconds", "longest_gap_s")


def profiles(efficiency: Fields, peaks: Fields, told: Fields, settings: Fields) -> dict[str, ProfileRecord]:
    """Every profile of which a rate or a peak is stored.

    ``efficiency`` has output tok/s by profile, ``peaks`` memory, ``told`` what our own reports say further of each,
    ``settings`` are the spec's, for profiles whose own are not stored.
    """
    names = [name for name in dict.fromkeys([*told.data, *efficiency.data, *peaks.data]) if name != ONLINE_SLO]
    return {
        name: _profile(name, efficiency, peaks.block(name), told.block(name), settings.block(name)) for name in names
    }


def _profile(name: str, efficiency: Fields, peak: Fields, told: Fields, settings: Fields) -> ProfileRecord:
    runs = tuple(_run(row) for row in told.rows("runs"))
    rate = told if told.has("output_tok_s") else efficiency
    of_runs = {reason for run in runs for reason in run.invalid}
    faults = [reason for reason in told.reasons() if reason not in of_runs]
    concurrency = (
        settings.count("requests") if settings.data.get("concurrency") == "all" else settings.count("concurrency")
    )
    return ProfileRecord(
        name=name,
        concurrency=told.count("concurrency") or concurrency or 0,
        input_tokens=told.count("input_tokens") or settings.count("input_tokens") or 0,
        output_tokens=told.count("output_tokens") or settings.count("output_tokens") or 0,
        requests=told.count("requests") or settings.count("requests") or 0,
        runs=runs,
        output_tok_s=rate.number("output_tok_s" if rate is told else name, least=0.0),
        memory=_memory(peak),
        load_sha256=told.text("load_sha256") or "",
        paired=tuple(_run(row) for row in told.rows("paired")),
        invalid=(*faults, *_contradiction(name, peak)),
        notes=told.texts("notes"),
    )


def again(told: Fields) -> dict[str, ProfileRecord]:
    """The baseline's profiles of its second start, by name."""
    found = {name: _again(name, block) for name, block in told.blocks() if block.rows("again")}
    return {name: record for name, record in found.items() if record.runs}


def _again(name: str, told: Fields) -> ProfileRecord:
    runs = tuple(_run(row) for row in told.rows("again"))
    return ProfileRecord(
        name=name,
        concurrency=told.count("concurrency") or 0,
        input_tokens=told.count("input_tokens") or 0,
        output_tokens=told.count("output_tokens") or 0,
        requests=told.count("requests") or 0,
        runs=runs,
        output_tok_s=_rate(runs),
        memory=PeakMemory(missing={"peak_gib": "not stored of the second start"}),
        load_sha256=told.text("load_sha256") or "",
    )


def _rate(runs: Sequence[ProfileRun]) -> float | None:
    """Tokens over seconds of all repeats; ``None`` when one of them has none."""
    seconds = [run.window_s for run in runs if run.window_s and run.output_tok_s is not None and not run.invalid]
    if not seconds or len(seconds) < len(runs):
        return None
    return sum(run.output_tokens for run in runs) / math.fsum(seconds)


def _run(row: Fields) -> ProfileRun:
    window_s, tok_s = row.number("window_s", least=0.0), row.number("output_tok_s", least=0.0)
    peaks = row.block("peaks")
    return ProfileRun(
        label=row.text("run") or "",
        window_s=window_s,
        output_tokens=round(tok_s * window_s) if tok_s is not None and window_s is not None else 0,
        output_tok_s=tok_s,
        requests=row.count("requests") or 0,
        failed=row.count("failed") or 0,
        **_numbers(row, _RUN),
        peaks=EnginePeaks(
            **_numbers(peaks, _PEAKS), readings=peaks.count("readings") or 0, missing=peaks.block("missing").words()
        ),
        requests_file=row.text("file"),
        invalid=row.reasons(),
        notes=row.texts("notes"),
    )


def _numbers(block: Fields, names: Sequence[str]) -> dict[str, Any]:
    return {name: block.number(name, least=0.0) for name in names}


def _memory(peak: Fields) -> PeakMemory:
    return PeakMemory(
        **_numbers(peak, _MEMORY),
        weights_source=peak.text("weights_source"),
        missing=peak.block("missing").words(),
    )


def _contradiction(name: str, peak: Fields) -> Iterator[Reason]:
    """A peak that is not the sum of its parts."""
    parts, total = [peak.number(part) for part in _PARTS], peak.number("peak_gib")
    known = [part for part in parts if part is not None]
    if total is None or len(known) < len(parts):
        return
    if abs(math.fsum(known) - total) > max(_ROUNDED_GIB, 1e-5 * total):
        text = f"{name}: a peak of {total:g} GiB is stored, but its parts add up to {math.fsum(known):.6g}"
        yield Reason(CODE, text)


def budgets(block: Fields) -> dict[str, BudgetRun]:
    """Reruns with less memory by profile, from names such as ``serve@1.02``."""
    found = [_rerun(name, run) for name, run in block.blocks()]
    return {run.profile: run for run in found}


def _rerun(name: str, run: Fields) -> BudgetRun:
    profile, _, factor = name.rpartition("@")
    return BudgetRun(
        profile=profile or name,
        factor=run.number("factor", least=0.0) or _factor(factor) or 1.0,
        budget_gib=run.number("budget_gib", least=0.0),
        kv_gib=run.number("kv_gib", least=0.0),
        running=run.number("running", least=0.0),
        full_running=run.number("full_running", least=0.0),
        healthy=run.flag("healthy"),
        value=run.number("value", least=0.0),
        invalid=(*run.reasons(), *_unhealthy(name, run)),
        notes=run.texts("notes"),
    )


def _unhealthy(name: str, run: Fields) -> Iterator[Reason]:
    """What a run that is stored as healthy says against it: as many must run as with the whole pool, at some rate."""
    if not run.flag("healthy"):
        return
    running, full, rate = run.number("running"), run.number("full_running"), run.number("value")
    if running is not None and full is not None and running < full:
        yield Reason(CODE, f"{name} is stored as healthy, but {running:g} of {full:g} requests ran at once")
    elif not rate:
        yield Reason(CODE, f"{name} is stored as healthy, but without a rate")


def _factor(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
