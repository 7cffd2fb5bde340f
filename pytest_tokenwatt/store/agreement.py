"""Whether the figures of a record agree with the parts that are stored beside them.

Who changes a figure by hand and leaves its parts, or swaps two blocks, gets a message and no verdict. Only what the
parts of one record say is looked at; what a record from elsewhere states without parts stands for itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pytest_tokenwatt.records import (
    ConfigRecord,
    EnergyRecord,
    GoodputRecord,
    Outcome,
    Percentile,
    PowerRecord,
    SuiteRecord,
    WindowPower,
    WindowResult,
)
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.drift import Divergence, PerplexityRecord
from pytest_tokenwatt.records.profiles import BudgetRun, PeakMemory, ProfileRecord, ProfileRun
from pytest_tokenwatt.store.misfit import Misfit, Said, parts, unless
from pytest_tokenwatt.store.replay.loading import joined
from pytest_tokenwatt.store.windows_agree import percentile, scenario, window

_ROUNDING = 1e-6
_LARGEST_EXPONENT = 709.0


def disagreeing(record: ConfigRecord) -> Iterator[Misfit]:
    """Every figure that its parts deny; none of a record from elsewhere, whose parts are not stored."""
    if record.stored is not None:
        return
    for place, part in parts(record):
        check = _CHECKS.get(type(part))
        for key, what in check(part) if check is not None else ():
            yield Misfit(joined(place, key), what)


def _names(record: ConfigRecord) -> Iterator[Said]:
    """Blocks that stand under the name of another one."""
    blocks: Mapping[str, Mapping[str, str]] = {
        "scenarios": {key: each.scenario for key, each in record.scenarios.items()},
        "suites": {key: each.name for key, each in record.suites.items()},
        "profiles": {key: each.name for key, each in record.profiles.items()},
        "again": {key: each.name for key, each in record.again.items()},
        "budgets": {key: each.profile for key, each in record.budgets.items()},
        "audits": {key: each.run for key, each in record.audits.items()},
        "drift.perplexity": {key: each.name for key, each in record.drift.perplexity.items()} if record.drift else {},
    }
    for block, names in blocks.items():
        for key, name in names.items():
            if key != name:
                yield f"{block}.{key}", f"this is {name!r:.60}"


# --- power


def _throttling(found: WindowPower | EnergyRecord) -> Iterator[Said]:
    for name, count in (found.throttle_counts or {}).items():
        if count > found.throttle_samples:
            yield f"throttle_counts.{name}", f"{count} of {found.throttle_samples} samples"


def _pace(found: PowerRecord) -> Iterator[Said]:
    for name, count in (("missed", found.missed), ("failed", found.failed)):
        if count > found.ticks:
            yield name, f"{count} of {found.ticks} ticks"


# --- accuracy, drift, audit


def _suite(suite: SuiteRecord) -> Iterator[Said]:
    if suite.items:
        found = Counter(item.outcome.value for item in suite.items)
        for name in sorted({*found, *suite.counts}):
            if found[name] != suite.counts.get(name, 0):
                yield f"counts.{name}", f"{suite.counts.get(name, 0)}, but {found[name]} of the items are so"
    answered = suite.answered
    if suite.score is not None and suite.counts:
        score = 100.0 * suite.counts.get(Outcome.CORRECT, 0) / answered if answered else None
        yield from unless("score", suite.score, score, "that of counts")


def _divergence(found: Divergence) -> Iterator[Said]:
    if found.per_sequence:
        mean = math.fsum(found.per_sequence) / len(found.per_sequence)
        yield from unless("kl_lower", found.kl_lower, mean, "the mean of per_sequence")
    if found.kl is not None and found.kl_lower is not None and found.kl < 0.99 * found.kl_lower - _ROUNDING:
        yield "kl", f"{found.kl:g}, but kl_lower bounds it by {found.kl_lower:g}"


def _perplexity(found: PerplexityRecord) -> Iterator[Said]:
    if len(found.nll) != found.windows and not found.invalid:
        yield "windows", f"{found.windows}, but nll is of {len(found.nll)}"
    mean = math.fsum(found.nll) / len(found.nll) if found.nll else math.inf
    yield from unless("ppl", found.ppl, math.exp(mean) if mean < _LARGEST_EXPONENT else None, "that of nll")


def _audit(found: AuditRecord) -> Iterator[Said]:
    if (found.status == "invalid") != bool(found.invalid):
        yield "status", f"{found.status}, but {len(found.invalid)} reasons speak against it"
    if found.samples != found.picked - found.empty:
        yield "samples", f"{found.samples}, but {found.picked} were picked and {found.empty} are empty"
    yield from _difference("gap", found.gap, found.bf16_mean, found.engine_mean)
    yield from _difference("top1_gap", found.top1_gap, found.bf16_top1, found.engine_top1)
    for name, low, high in (
        ("gap", found.gap, found.gap_max),
        ("gap_median", found.gap_median, found.gap_max),
        ("length_ratio_min", found.length_ratio_min, found.length_ratio),
    ):
        if low is not None and high is not None and low > high * (1 + 1e-9):
            yield name, f"{low:g} is above the largest, {high:g}"


def _difference(name: str, found: float | None, ours: float | None, theirs: float | None) -> Iterator[Said]:
    if ours is not None and theirs is not None:
        yield from unless(name, found, ours - theirs, "the difference of the two")


# --- profiles


def _run(run: ProfileRun) -> Iterator[Said]:
    if run.failed > run.requests:
        yield "failed", f"{run.failed} of {run.requests} requests"
    if run.output_tok_s is not None:
        rate = run.output_tokens / run.window_s if run.window_s else None
        yield from unless("output_tok_s", run.output_tok_s, rate, "output_tokens over window_s")


def _profile(profile: ProfileRecord) -> Iterator[Said]:
    if profile.output_tok_s is not None and profile.runs:
        known = all(run.output_tok_s is not None and not run.invalid for run in profile.runs)
        seconds = sum(run.window_s or 0.0 for run in profile.runs)
        rate = sum(run.output_tokens for run in profile.runs) / seconds if known and seconds else None
        yield from unless("output_tok_s", profile.output_tok_s, rate, "that of all runs")
    usages = [run.peaks.kv_usage for run in profile.runs]
    known_usages = [usage for usage in usages if usage is not None]
    if known_usages and len(known_usages) == len(usages):
        yield from unless("memory.kv_usage", profile.memory.kv_usage, max(known_usages), "the largest of the runs")


def _memory(memory: PeakMemory) -> Iterator[Said]:
    if memory.peak_gib is not None:
        known = [part for part in (memory.weights_gib, memory.kv_gib, memory.other_gib) if part is not None]
        yield from unless("peak_gib", memory.peak_gib, sum(known) if len(known) == 3 else None, "the sum of its parts")


def _budget(run: BudgetRun) -> Iterator[Said]:
    if not run.healthy:
        return
    if run.invalid:
        yield "healthy", "true, but the run is invalid"
    elif run.running is None or run.full_running is None or run.value is None:
        yield "healthy", "true, but what it rests on is not known"
    elif run.running < run.full_running:
        yield "healthy", f"true, but {run.running:g} requests ran at once, {run.full_running:g} with the whole pool"


_CHECKS: Mapping[type, Callable[[Any], Iterator[Said]]] = {
    ConfigRecord: _names,
    Percentile: percentile,
    WindowResult: window,
    GoodputRecord: scenario,
    EnergyRecord: _throttling,
    WindowPower: _throttling,
    PowerRecord: _pace,
    SuiteRecord: _suite,
    Divergence: _divergence,
    PerplexityRecord: _perplexity,
    AuditRecord: _audit,
    ProfileRun: _run,
    ProfileRecord: _profile,
    PeakMemory: _memory,
    BudgetRun: _budget,
}
