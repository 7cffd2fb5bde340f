"""Records and gates for the tests of verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_tokenwatt.metrics.tally import failed_reasons, outcome_counts, score_pct, spread_pts
from pytest_tokenwatt.records import (
    ClientHealth,
    ConfigRecord,
    Contract,
    EnergyRecord,
    Figure,
    GateSpec,
    GoodputRecord,
    ItemResult,
    Outcome,
    Percentile,
    ProbeOutcome,
    Reason,
    SloBound,
    SuiteRecord,
    WindowResult,
)
from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord, ProfileRun

BOUNDS = (SloBound("ttft", 99, 2000), SloBound("tpot", 99, 50))
HEALTH = ClientHealth(0.1, 20.0, 0.2, 400, 400, 0, 400, 0, 40_000, 0, 1.0, 0)


def percentile(metric: str, value_ms: float | None, bound_ms: float | None) -> Percentile:
    """A p99; ``None`` is infinite."""
    return Percentile(metric, 99.0, value_ms, value_ms is None, 400, None, None, bound_ms)


def percentiles(ttft_ms: float | None = 340.0, tpot_ms: float | None = 44.6) -> tuple[Percentile, ...]:
    """Both of the SLO, and one that no SLO asks for."""
    return (percentile("ttft", ttft_ms, 2000.0), percentile("tpot", tpot_ms, 50.0), percentile("e2e", 9000.0, None))


def window(rate_rps: float, passes: bool = True, *, kind: str = "fixed", **changes: Any) -> WindowResult:
    """A judged window of 120 s."""
    result = WindowResult(
        kind=kind,
        label=f"{kind}-{rate_rps:g}",
        rate_rps=rate_rps,
        start_s=0.0,
        end_s=120.0,
        planned=400,
        ok=400,
        failures={},
        failure_example=None,
        percentiles=percentiles() if passes else percentiles(tpot_ms=61.2),
        stable=True,
        waiting_growth=0.0,
        output_tokens=40_000,
        good_tokens=40_000,
        output_tok_s=333.3,
        goodput_tok_s=333.3,
        passes=passes,
        misses=() if passes else ("TPOT p99 61.2 ms > 50 ms",),
        decided="",
        invalid=(),
        client=HEALTH,
    )
    return replace(result, **changes)


def goodput(tok_s: float | None = 4572.3, **changes: Any) -> GoodputRecord:
    """A confirmed scenario; without ``tok_s`` one of which no rate passed."""
    passed = tok_s is not None
    record = GoodputRecord(
        scenario="default",
        mode="search",
        slo=BOUNDS,
        rate_rps=11.2 if passed else None,
        goodput_tok_s=tok_s,
        output_tok_s=tok_s,
        percentiles=percentiles() if passed else percentiles(tpot_ms=61.2),
        slo_pass_count=2 if passed else 0,
        repeats=2,
        highest_passing_rps=11.2 if passed else None,
        lowest_failing_rps=11.4,
        bracket="closed" if passed else "none",
        backoffs=0,
        error_pct=1.8 if passed else None,
        variance_band_pct=1.0 if passed else None,
        misses=() if passed else ("TPOT p99 61.2 ms > 50 ms",),
        invalid=(),
        notes=(),
        windows=(),
        figures={
            "ttft_p50_ms": Figure(50.0, "ms"),
            "ttft_p99_ms": Figure(340.0, "ms"),
            "goodput_tok_s": Figure(tok_s, "tok/s", reason=None if passed else "no rate passed"),
            "failed_requests": Figure(0.0, "requests"),
            "server:vllm:num_preemptions_total": Figure(0.0, ""),
        },
    )
    return replace(record, **changes)


def energy(tok_j: float | None = 7.178, **changes: Any) -> EnergyRecord:
    """Board energy of one GPU over two windows of 120 s."""
    record = EnergyRecord(
        source="board",
        kind="board",
        sensors=1,
        energy_j=152_880.0,
        node_power_kw=0.637,
        tokens_per_joule=tok_j,
        output_tokens_per_joule=tok_j,
        variance_band_pct=1.0,
        throttle_counts={"sw_power_cap": 199},
        throttle_samples=240,
        throttle_s={},
        gpu_share_pct=None,
        invalid=(),
    )
    return replace(record, **changes)


def contract(**states: str) -> Contract:
    """A contract whose required probes are ``model`` and ``stream``, the optional one ``ids``."""
    found = {"model": "pass", "stream": "pass", "ids": "pass", **states}
    return Contract(
        tuple(ProbeOutcome(name, name != "ids", state, f"{name} says {state}", "") for name, state in found.items())
    )


def config(key: str = "tuned", *scenarios: GoodputRecord, **changes: Any) -> ConfigRecord:
    """A configuration's record; without scenarios the default one."""
    records = scenarios or (goodput(),)
    record = ConfigRecord(
        key=key,
        role="baseline" if key == "baseline" else "tuned",
        label=key,
        like=None,
        identity=None,
        fingerprint=None,
        contract=contract(),
        scenarios={each.scenario: each for each in records},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
    )
    return replace(record, **changes)


def gate(kind: str, limits: Mapping[str, Any] | None = None, **changes: Any) -> GateSpec:
    """A gate of ``tuned`` with these limits."""
    defaults: dict[str, Mapping[str, Any]] = {
        "slo": {"at_rps": None, "ttft_p99_ms": 2000.0, "tpot_p99_ms": 50.0},
        "goodput": {"min": 0.95, "min_tok_s": None, "min_rps": None},
        "energy": {"min": None, "min_tok_j": None},
        "speed": {"min": 0.95, "max_error": 0.05, "profiles": ["serve"], "online_slo": None},
        "memory": {"min": 1.0, "profiles": ["serve"]},
        "audit": {"picked": 24, "max_gap_median": 0.5, "max_empty_alone": 1, "min_length_ratio": 0.8, "profiles": []},
        "budget": {"factor": 1.02, "profiles": ["serve"]},
    }
    spec = GateSpec(
        config="tuned",
        gate=kind,
        kind=kind,
        param=None,
        scenario=None if kind in ("contract", "rule") else "default",
        needs="goodput",
        mode="enforce",
        on_inconclusive="fail",
        line=7,
        limits={**defaults.get(kind, {}), "on_missing_baseline": "fail", **(limits or {})},
    )
    return replace(spec, **changes)


def rule(metric: str, **limits: float) -> GateSpec:
    """A rule on a metric."""
    names = dict.fromkeys(("min", "max", "min_ratio", "max_ratio"))
    return gate("rule", {**names, "metric": metric, **limits}, gate="rule[mine]", param="mine")


INVALID = Reason("client_cpu", "a load worker used 97 % of a core")


def answers(pattern: str, *, seed: int = 0, template: str | None = None) -> tuple[ItemResult, ...]:
    """One item a letter: ``+`` right, ``-`` wrong, ``u`` unparseable, ``t`` truncated, ``f`` failed."""
    outcomes = dict(zip("+-utf", Outcome, strict=True))
    return tuple(
        ItemResult(f"q{number}", seed, outcomes[letter], cluster=template) for number, letter in enumerate(pattern)
    )


def pairs(both: int, lost: int, gained: int, neither: int) -> tuple[str, str]:
    """Patterns of baseline and candidate with these numbers of pairs."""
    return "+" * (both + lost) + "-" * (gained + neither), "+" * both + "-" * lost + "+" * gained + "-" * neither


def suite(items: str | tuple[ItemResult, ...] = "", name: str = "gsm8k", **changes: Any) -> SuiteRecord:
    """A suite with these answers, and the score that they make."""
    results = answers(items) if isinstance(items, str) else items
    reasons = failed_reasons(results)
    record = SuiteRecord(
        name=name,
        suite=f"suites/{name}.jsonl",
        sha256="ab" * 32,
        scorer="numeric",
        api="completions",
        shots=None,
        max_tokens=384,
        seeds=len({item.seed for item in results}) or 1,
        items=results,
        score=None if reasons else score_pct(results),
        spread_pts=None if reasons else spread_pts(results),
        counts=outcome_counts(results),
        invalid=reasons,
    )
    return replace(record, **changes)


def scored(score: float | None, name: str = "gsm8k", **changes: Any) -> SuiteRecord:
    """A suite of which only the score is known, as other tools report it."""
    foreign: dict[str, Any] = {"score": score, "counts": {}, "invalid": (), "spread_pts": 0.0, "sha256": ""}
    return suite("", name, **{**foreign, **changes})


def with_suites(key: str, *suites: SuiteRecord, **changes: Any) -> ConfigRecord:
    """A configuration that answered these suites."""
    return config(key, suites={each.name: each for each in suites}, **changes)


def accuracy_gate(param: str = "gsm8k", **limits: Any) -> GateSpec:
    """An accuracy gate of ``tuned``: a suite's, or with ``max_mean_drop_pts`` that of the mean."""
    usual = {"rule": "point", "max_drop_pts": 1.0, "min_score": None, "limit": 200, "seeds": 1, "control": False}
    used = limits if "max_mean_drop_pts" in limits else {**usual, **limits}
    return gate("accuracy", used, gate=f"accuracy[{param}]", param=param, scenario=None, needs="accuracy")


# --- closed-loop profiles


def profile_run(tok_s: float | None, **changes: Any) -> ProfileRun:
    """One repeat of 100 s."""
    run = ProfileRun(
        label="serve-r0",
        window_s=100.0,
        output_tokens=round(100 * (tok_s or 0.0)),
        output_tok_s=tok_s,
        requests=128,
        failed=0,
        held_share=1.0,
        client_cpu_share=0.1,
    )
    return replace(run, **changes)


def peak(peak_gib: float | None = 55.602, error: float | None = 0.001, **changes: Any) -> PeakMemory:
    """A peak of which only its sum matters."""
    missing = {} if peak_gib is not None else {"peak_gib": "other_gib: the log does not tell"}
    return replace(PeakMemory(peak_gib=peak_gib, error=error, missing=missing), **changes)


def profile(
    *rates: float | None, name: str = "serve", memory: PeakMemory | None = None, **changes: Any
) -> ProfileRecord:
    """A profile with a repeat for every rate."""
    runs = tuple(profile_run(rate) for rate in rates)
    known = [rate for rate in rates if rate is not None]
    record = ProfileRecord(
        name=name,
        concurrency=32,
        input_tokens=8192,
        output_tokens=512,
        requests=128,
        runs=runs,
        output_tok_s=sum(known) / len(known) if known and len(known) == len(rates) else None,
        memory=memory or peak(),
        load_sha256="ab",
    )
    return replace(record, **changes)


def with_profiles(key: str, *profiles: ProfileRecord, **changes: Any) -> ConfigRecord:
    """A configuration that was measured with these profiles."""
    return config(key, profiles={each.name: each for each in profiles}, **changes)
