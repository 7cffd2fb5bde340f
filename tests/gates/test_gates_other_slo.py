"""Stored runs judged by another SLO than they were measured under: nothing passes by the old one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import config, energy, goodput, percentiles, window
from jsonschema import Draft202012Validator

from pytest_tokenwatt.errors import GateFailed
from pytest_tokenwatt.records import ConfigRecord, Figure, GateResult, GoodputRecord, Verdict, WindowResult
from pytest_tokenwatt.replay import ReplayLab, open_replay
from pytest_tokenwatt.report.markdown import render_markdown
from pytest_tokenwatt.report.schema import report_schema
from pytest_tokenwatt.store.records_json import write_record
from pytest_tokenwatt.store.replay.read import read_stored

SCHEMA = Draft202012Validator(report_schema())
REFERENCE = Path(__file__).resolve().parents[1] / "report" / "reference"
SPEC: Mapping[str, Any] = {
    "name": "lab",
    "engine": {"endpoint": "http://127.0.0.1:8000/v1", "model": "m"},
    "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": 50},
    "measurement": {"repeats": 2},
    "power": {"source": "board"},
    "gates": {"rules": [{"name": "wait", "metric": "ttft_p50_ms", "max": 1000}]},
}


def confirmed(tpot_ms: float, **changes: Any) -> tuple[WindowResult, ...]:
    """A search that failed above, and two repeats that passed."""
    passed = [window(11.2, kind="confirm", percentiles=percentiles(tpot_ms=tpot_ms), **changes) for _ in range(2)]
    return (window(11.4, passes=False, kind="search"), *passed)


def records(*windows: WindowResult, **changes: Any) -> tuple[ConfigRecord, ...]:
    """A baseline and a candidate with the same windows."""
    found = windows or confirmed(44.6)
    made = [scenario(tok_s, found, **changes) for tok_s in (4000.0, 4572.3)]
    return tuple(config(key, record, spec=SPEC) for key, record in zip(("baseline", "tuned"), made, strict=True))


def scenario(tok_s: float, windows: tuple[WindowResult, ...], **changes: Any) -> GoodputRecord:
    """A scenario whose windows delivered as much as it says."""
    tokens = round(120 * tok_s)
    told = tuple(
        replace(each, output_tokens=tokens, good_tokens=tokens, output_tok_s=tok_s, goodput_tok_s=tok_s)
        for each in windows
    )
    found: dict[str, Any] = {"windows": told, "energy": energy(), "variance_band_pct": 0.0, "figures": WAIT, **changes}
    return goodput(tok_s, **found)


def replayed(
    tmp_path: Path, slo: Mapping[str, float] | None, found: tuple[ConfigRecord, ...] | None = None, **blocks: Any
) -> ReplayLab:
    """A run directory under the SLO of a given spec (``None``: under its own)."""
    tmp_path.mkdir(exist_ok=True)
    for record in found or records():
        write_record(tmp_path / f"record-{record.key}.json", record)
    return given(tmp_path, [tmp_path], slo, SPEC, **blocks)


def given(
    tmp_path: Path, paths: list[Path], slo: Mapping[str, float] | None, spec: Mapping[str, Any], **blocks: Any
) -> ReplayLab:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({**spec, **blocks, **({"slo": slo} if slo else {})}), encoding="utf-8")
    allow = ["slo"] if blocks.get("title") == "allowed" else []
    return open_replay(paths, out=tmp_path / "out", spec=asked if slo or blocks else None, allow=allow)


def judged(lab: ReplayLab) -> dict[str, GateResult]:
    return {f"{gate.config}::{gate.gate}": lab.judge(gate) for gate in lab.gates}


def verdicts(lab: ReplayLab) -> dict[str, str]:
    return {name: result.verdict.value for name, result in judged(lab).items()}


WAIT = {"ttft_p50_ms": Figure(50.0, "ms")}
STRICTER = {"ttft_p99_ms": 2000, "tpot_p99_ms": 40}
LOOSER = {"ttft_p99_ms": 2000, "tpot_p99_ms": 80}
UNKNOWN = {"tuned::goodput", "tuned::energy", "tuned::rule[wait]", "baseline::rule[wait]"}


@pytest.mark.parametrize(("slo", "verdict"), [(STRICTER, "fail"), (LOOSER, "pass"), ({"ttft_p99_ms": 300}, "fail")])
def test_under_another_slo_only_the_windows_are_judged(tmp_path: Path, slo: Mapping[str, float], verdict: str) -> None:
    own = verdicts(replayed(tmp_path / "own", None))
    assert set(own.values()) <= {"pass", "-"}
    lab = replayed(tmp_path / "other", slo)
    found = judged(lab)
    assert {found[f"{key}::slo"].verdict.value for key in ("baseline", "tuned")} == {verdict}
    for name in UNKNOWN:
        result = found[name]
        assert [reason.code for reason in result.reasons] == ["not_stored"], name
        assert result.found is Verdict.INCONCLUSIVE
        assert "measured under ttft_p99_ms <= 2000, tpot_p99_ms <= 50, not under" in result.reasons[0].text
        assert ("4572 tok/s at 11.2 req/s is a lower bound" in result.reasons[0].text) == (
            slo is LOOSER and name.startswith("tuned")
        )


def test_a_window_that_misses_fails_the_slo_though_all_repeats_together_meet_it(tmp_path: Path) -> None:
    late = [window(11.2, kind="confirm", percentiles=percentiles(tpot_ms=tpot_ms)) for tpot_ms in (44.0, 47.0)]
    found = judged(replayed(tmp_path, {"tpot_p99_ms": 46}, records(*late)))["tuned::slo"]
    assert (found.verdict, found.text) == (Verdict.FAIL, "11.2 req/s, TPOT p99 47 ms")
    assert found.reasons[0].text == "at 11.2 req/s TPOT p99 47 ms > 46 ms"


def test_percentiles_that_no_window_has_leave_the_slo_open(tmp_path: Path) -> None:
    found = judged(replayed(tmp_path, {"ttft_p99.9_ms": 2000}))["tuned::slo"]
    assert (found.verdict, found.reasons[0].code) == (Verdict.INCONCLUSIVE, "not_stored")
    assert "ttft_p99.9_ms" in found.reasons[0].text


def test_a_rate_that_was_decided_early_or_never_found_says_nothing_of_a_looser_slo(tmp_path: Path) -> None:
    failed = tuple(window(rate, passes=False, kind="search", decided="failing") for rate in (1.0, 2.0))
    none = records(*failed, rate_rps=None, goodput_tok_s=None, misses=("TPOT p99 61.2 ms > 50 ms",), slo_pass_count=0)
    found = verdicts(replayed(tmp_path / "looser", LOOSER, none))
    assert {found[name] for name in ("tuned::slo", "tuned::goodput")} == {"inconclusive"}
    # Under a stricter one the same probes fail again.
    found = verdicts(replayed(tmp_path / "stricter", STRICTER, none))
    assert {found[name] for name in ("tuned::slo", "tuned::goodput")} == {"fail"}


def test_listed_rates_that_all_miss_a_stricter_slo_have_no_goodput(tmp_path: Path) -> None:
    fixed = tuple(window(rate, kind="fixed") for rate in (4.0, 4.0, 8.0, 8.0))
    listed = records(*fixed, mode="fixed", bracket="fixed", rate_rps=8.0)
    found = judged(replayed(tmp_path, STRICTER, listed))
    assert found["tuned::goodput"].verdict is Verdict.FAIL
    assert "at 4 req/s TPOT p99 44.6 ms > 40 ms" in [reason.text for reason in found["tuned::goodput"].reasons]


def test_a_rate_of_the_gate_is_judged_by_the_bounds_of_the_gate(tmp_path: Path) -> None:
    fixed = tuple(window(rate, kind="fixed") for rate in (4.0, 4.0, 8.0, 8.0))
    listed = records(*fixed, mode="fixed", bracket="fixed", rate_rps=8.0)
    gates = {"slo": {"at_rps": 4.0}}
    assert verdicts(replayed(tmp_path / "a", STRICTER, listed, gates=gates))["tuned::slo"] == "fail"
    assert verdicts(replayed(tmp_path / "b", LOOSER, listed, gates=gates))["tuned::slo"] == "pass"


# --- published reports


def published(tmp_path: Path, slo: Mapping[str, float], **blocks: Any) -> ReplayLab:
    path = REFERENCE / "lab-kv-cache.json"
    spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
    return given(tmp_path, [path], slo, spec, **blocks)


def test_the_report_has_no_goodput_of_another_slo(tmp_path: Path) -> None:
    lab = published(tmp_path, {"ttft_p99_ms": 2000, "tpot_p99_ms": 44})
    found = judged(lab)
    assert (found["tuned::slo"].verdict, found["baseline::slo"].verdict) == (Verdict.PASS, Verdict.FAIL)
    assert found["tuned::slo"].text == "2 of 2 repeats over all repeats together, TPOT p99 43.7 ms"
    assert found["tuned::goodput"].verdict is Verdict.INCONCLUSIVE
    done = lab.finish()
    assert done is not None
    assert "SLO goodput" not in done.report["summary"]
    for entry in done.report["configs"]:
        assert (entry["goodput_tok_s"], entry["tokens_per_joule"], entry["slo_pass_count"]) == (None, None, None)
        assert "measured under ttft_p99_ms <= 2000, tpot_p99_ms <= 50" in entry["missing"]["goodput_tok_s"]
        assert entry["accuracy"]["score"] is not None
    assert list(SCHEMA.iter_errors(done.report)) == []
    assert "5057" not in render_markdown(done.report)
    with pytest.raises(GateFailed, match="measured under"):
        lab.goodput("tuned")
    again = open_replay([done.report_path], out=tmp_path / "again")
    assert verdicts(again)["tuned::goodput"] == "inconclusive"
    assert verdicts(again)["tuned::accuracy[gsm8k-5shot]"] == "fail"


def test_records_are_kept_as_they_were_measured(tmp_path: Path) -> None:
    write_record(tmp_path / "record-tuned.json", records()[1])
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({**SPEC, "slo": STRICTER}), encoding="utf-8")
    lab = open_replay([tmp_path / "record-tuned.json"], out=tmp_path / "kept.json", spec=asked)
    judged(lab)
    lab.finish()
    (kept,) = read_stored(tmp_path / "kept.json").records
    assert kept.scenarios["default"].goodput_tok_s == 4572.3


def test_slos_that_may_differ_are_compared_and_named(tmp_path: Path) -> None:
    base, tuned = records()
    other = replace(base.scenarios["default"], slo=base.scenarios["default"].slo[:1])
    pair = (replace(base, scenarios={"default": other}), tuned)
    lab = replayed(tmp_path, SPEC["slo"], pair, title="allowed")
    assert verdicts(lab)["tuned::goodput"] == "pass"
    done = lab.finish()
    assert done is not None
    assert "SLO goodput" not in done.report["summary"]
    assert "goodput under different SLOs" in done.report["summary"]
    assert "4000 tok/s at 11.2 req/s under ttft_p99_ms <= 2000" in done.report["summary"]
    assert list(SCHEMA.iter_errors(done.report)) == []
    shown = render_markdown(done.report)
    assert "(under TTFT p99 2000 ms)" in shown
    assert "+14.3 %" not in shown.partition("| Goodput")[2].partition("\n")[0]
    assert "under another SLO: TTFT p99 at most 2,000 ms" in done.report_path.with_suffix(".html").read_text("utf-8")
    stored = {each.key: each.scenarios["default"] for each in read_stored(done.report_path).records}
    assert [bound.name for bound in stored["baseline"].slo] == ["ttft_p99_ms"]
