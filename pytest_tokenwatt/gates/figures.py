"""Figures of a configuration beside those of its scenarios, by the names that rules use.

``serve.output_tok_s`` is of the profile ``serve``, ``gsm8k.score`` of a suite, ``wiki.ppl`` of a corpus, and
``startup.load_seconds`` of the start-up log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_tokenwatt.gates.comparable import OPTION, SUITE, WORKLOAD
from pytest_tokenwatt.records import ConfigRecord, Figure, Reason
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.spec.model import Spec

STARTUP = "startup"
_SERVER = "server:"

_RATES = {"output_tok_s": "tok/s"}
_OF_RUNS = {"ttft_p50_ms": "ms", "tpot_p50_ms": "ms", "e2e_p50_ms": "ms"}
_OF_PEAKS = {"preemptions": "requests", "running": "requests"}
_OF_MEMORY = {
    "peak_gib": "GiB",
    "weights_gib": "GiB",
    "kv_gib": "GiB",
    "other_gib": "GiB",
    "device_peak_gib": "GiB",
    "kv_usage": "share",
    "kv_bytes_per_token": "B",
}
_OF_STARTUP = {
    "load_seconds": "s",
    "engine_init_seconds": "s",
    "weights_gib": "GiB",
    "kv_cache_gib": "GiB",
    "kv_cache_tokens": "tokens",
    "cuda_graph_gib": "GiB",
}
_OF_PROFILES = {**_RATES, **_OF_RUNS, **_OF_PEAKS, **_OF_MEMORY}
_SCORE, _PPL = "score", "ppl"


def split_name(metric: str) -> tuple[str, str] | None:
    """What a figure is of, and which; ``None`` for a figure of scenarios such as ``ttft_p99.9_ms``, or a server's."""
    of, dot, figure = metric.rpartition(".")
    known = figure in {*_OF_PROFILES, *_OF_STARTUP, _SCORE, _PPL}
    return (of, figure) if dot and known and not metric.startswith(_SERVER) else None


def figure_needs(spec: Spec) -> Mapping[str, str]:
    """All such figures that the spec measures: their names, and the measurement that gives them."""
    found = {f"{STARTUP}.{name}": "contract" for name in _OF_STARTUP}
    found |= {f"{profile}.{name}": "profiles" for profile in spec.profiles for name in _OF_PROFILES}
    found |= {f"{suite.title}.{_SCORE}": "accuracy" for suite in spec.accuracy}
    return found | {f"{corpus.name}.{_PPL}": "drift" for corpus in (spec.drift.perplexity if spec.drift else ())}


def configuration_figure(config: ConfigRecord, metric: str) -> Figure:
    """The figure of that name, with its reason where it has no value."""
    of, name = split_name(metric) or ("", metric)
    if config.invalid:
        return Figure(None, "", reason=str(config.invalid[0]))
    if of == STARTUP and name in _OF_STARTUP:
        return _of_startup(config, name)
    if name == _SCORE:
        suite = config.suites.get(of)
        return _figure(suite.score if suite else None, "%", suite.invalid if suite else ())
    if name == _PPL:
        corpus = config.drift.perplexity.get(of) if config.drift else None
        return _figure(corpus.ppl if corpus else None, "ppl", corpus.invalid if corpus else ())
    profile = config.profiles.get(of)
    if profile is None:
        return Figure(None, _OF_PROFILES.get(name, ""), reason=f"profile {of} was not measured")
    return _of_profile(profile, name)


def is_timed(metric: str) -> bool:
    """Whether a figure depends on how fast the machine is, as all do but scores, perplexities and memory."""
    return (split_name(metric) or ("", metric))[1] not in {_SCORE, _PPL, *_OF_MEMORY}


def unlike_loads(metric: str, candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    """Why a figure of two configurations cannot be compared: they were asked different things."""
    of, name = split_name(metric) or ("", metric)
    hashes: Sequence[str] = ()
    if name == _SCORE:
        hashes = [config.suites[of].sha256 for config in (candidate, baseline) if of in config.suites]
    elif name == _PPL:
        drifts = [config.drift for config in (candidate, baseline) if config.drift]
        hashes = [drift.perplexity[of].sha256 for drift in drifts if of in drift.perplexity]
    elif of != STARTUP:
        hashes = [config.profiles[of].load_sha256 for config in (candidate, baseline) if of in config.profiles]
    if len(set(hashes) - {""}) > 1:
        name = SUITE if name == _SCORE else WORKLOAD
        text = f"{of}: candidate and baseline were asked different things"
        return Reason("workload_differs", f"{text}; {OPTION}={name} compares them all the same")
    return None


def _figure(value: float | None, unit: str, reasons: Sequence[Reason], otherwise: str = "not measured") -> Figure:
    """An invalid measurement has no value, whatever its record says."""
    told = "; ".join(map(str, reasons))
    return Figure(None if reasons else value, unit, reason=told or (otherwise if value is None else None))


def _of_startup(config: ConfigRecord, name: str) -> Figure:
    startup = config.startup
    told = startup.missing.get(name) if startup else None
    value: float | None = getattr(startup, name) if startup else None
    return _figure(value, _OF_STARTUP[name], (), told or "the start-up log was not read")


def _of_profile(profile: ProfileRecord, name: str) -> Figure:
    unit = _OF_PROFILES[name]
    if name in _RATES:
        return _figure(profile.output_tok_s, unit, profile.invalid)
    if name in _OF_MEMORY:
        told = profile.memory.missing.get(name, "not read")
        value: float | None = getattr(profile.memory, name)
        return _figure(value, unit, profile.invalid, told)
    values: list[float | None] = [getattr(run.peaks if name in _OF_PEAKS else run, name) for run in profile.runs]
    known = [value for value in values if value is not None]
    # The worst repeat; one that was not read may be that.
    worst = max(known) if known and len(known) == len(values) else None
    return _figure(worst, unit, profile.invalid, "not read in every repeat")
