"""What may become a baseline, what the option asks for, and what is stored and said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.campaign.saving import Course, SaveRequest, may_be_saved, save_baseline, save_requests
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GateResult, Reason, ServedIdentity, SuiteRecord, Verdict
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.baselines import read_baseline

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BOTH = "configs: [{key: base, role: baseline}, {key: tuned, role: tuned}]\n"
CANDIDATES = "configs: [{key: fp8, role: tuned}, {key: int4, role: tuned}]\n"
IDS = ("base::slo", "tuned::goodput")


def load(directory: Path, text: str) -> Spec:
    path = directory / "spec.yaml"
    engine = "engine: {endpoint: 'http://127.0.0.1:1/v1', model: m}"
    path.write_text(f"name: n\n{engine}\nslo: {{ttft_p99_ms: 9}}\n{text}", encoding="utf-8")
    return load_spec(path, {})


def record(**changes: Any) -> ConfigRecord:
    suite = SuiteRecord("gsm8k", "gsm8k.jsonl", "ab", "numeric", "completions", None, 9, 1, (), 50.0, None, {}, ())
    plain = ConfigRecord(
        key="base",
        role="baseline",
        label="vllm-base",
        like=None,
        identity=None,
        fingerprint="print",
        contract=None,
        scenarios={},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
        suites={"gsm8k": suite},
        provenance=Provenance(recorded="2026-11-18T09:30:00+00:00"),
    )
    return replace(plain, **changes)


def result(identity: str, verdict: Verdict = Verdict.PASS, code: str = "within_error", **changes: Any) -> GateResult:
    config, _, gate = identity.partition("::")
    plain = GateResult(
        id=identity,
        config=config,
        gate=gate,
        value=1.0,
        unit=None,
        limit=None,
        error=None,
        verdict=verdict,
        mode="enforce",
        reasons=(Reason(code, "so it is"),),
        text="",
        rule="",
    )
    return replace(plain, **changes)


PASSED = (result("base::slo"), result("tuned::goodput"))
WHOLE = Course(gates=IDS)


# --- whether it may be


def test_a_complete_passing_session_may_be_saved() -> None:
    assert may_be_saved(PASSED, WHOLE, record()) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"interrupted": "KeyboardInterrupt"}, "the run was interrupted (KeyboardInterrupt)"),
        ({"quick": True}, "--tokenwatt-quick is for validation only"),
        ({"deselected": 1}, "1 item was deselected"),
        ({"deselected": 3, "narrowed": ("-k fp8", "-m slow")}, "3 items were deselected (-k fp8, -m slow)"),
        ({"narrowed": ("--tokenwatt-config=tuned",)}, "only a part was selected (--tokenwatt-config=tuned)"),
        ({"failed_tests": 2}, "2 tests failed"),
        ({"gates": (*IDS, "tuned::kl")}, "not judged: tuned::kl"),
        ({"gates": (*IDS, *"abcde")}, "not judged: a, b, c and 2 more"),
    ],
)
def test_a_session_that_was_not_whole_is_told(changes: dict[str, Any], why: str) -> None:
    assert may_be_saved(PASSED, replace(WHOLE, **changes), record()) == why


@pytest.mark.parametrize(
    ("verdict", "changes", "why"),
    [
        (Verdict.FAIL, {}, "failed: tuned::kl"),
        (Verdict.FAIL, {"code": "no_baseline"}, "failed: tuned::kl"),
        (Verdict.INVALID, {}, "invalid: tuned::kl"),
        (Verdict.INCONCLUSIVE, {}, "inconclusive: tuned::kl"),
        (Verdict.INCONCLUSIVE, {"on_inconclusive": "skip"}, "inconclusive: tuned::kl"),
        (Verdict.INCONCLUSIVE, {"code": "no_baseline"}, "inconclusive: tuned::kl"),
        (Verdict.INCONCLUSIVE, {"code": "no_baseline", "on_inconclusive": "skip"}, None),
        (Verdict.INFO, {"found": Verdict.FAIL}, None),
    ],
)
def test_every_verdict_but_a_pass_is_told(verdict: Verdict, changes: dict[str, Any], why: str | None) -> None:
    results = (*PASSED, result("tuned::kl", verdict, **changes))
    assert may_be_saved(results, WHOLE, record()) == why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (None, "the configuration was not measured in this session"),
        (record(invalid=(Reason("engine_died", "exit 137"),)), "base is invalid: engine_died: exit 137"),
        (record(suites={}), "nothing was measured of base"),
        (
            record(provenance=Provenance(quick=True)),
            "base was measured with --tokenwatt-quick, which is for validation only",
        ),
        (record(provenance=Provenance(interrupted="Ctrl-C")), "the run of base was interrupted (Ctrl-C)"),
    ],
)
def test_a_record_that_is_not_fit_is_told(changed: ConfigRecord | None, why: str) -> None:
    assert may_be_saved(PASSED, WHOLE, changed) == why


def test_everything_that_speaks_against_it_is_told_at_once() -> None:
    told = may_be_saved((result("base::slo", Verdict.FAIL),), replace(WHOLE, quick=True, deselected=1), None)
    assert told is not None
    assert [part.split(":")[0] for part in told.split("; ")] == [
        "--tokenwatt-quick is for validation only",
        "1 item was deselected",
        "not judged",
        "failed",
        "the configuration was not measured in this session",
    ]


def test_a_session_without_any_gate_is_no_pass() -> None:
    assert may_be_saved((), Course(gates=()), record()) == "no gate was judged"


# --- what is asked for


def test_a_file_alone_means_the_baseline_and_a_key_its_configuration(tmp_path: Path) -> None:
    given = ["main.json", "tuned=deep/er/tuned.json", "base=./a=b.json"]
    found = save_requests(given, tmp_path, load(tmp_path, BOTH))
    assert found == (
        SaveRequest("base", tmp_path / "main.json"),
        SaveRequest("tuned", tmp_path / "deep/er/tuned.json"),
        SaveRequest("base", tmp_path / "a=b.json"),
    )
    assert save_requests(["./a=b.json"], tmp_path, load(tmp_path, BOTH))[0].path == tmp_path / "a=b.json"
    only = load(tmp_path, "").with_role("tuned")
    assert save_requests([f"{tmp_path}/x.json"], Path("/"), only) == (SaveRequest("tuned", tmp_path / "x.json"),)
    assert save_requests([], tmp_path, load(tmp_path, CANDIDATES)) == ()


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (BOTH, ["tunned=x.json"], "there is no configuration tunned; did you mean tuned? (a file of that name is ./"),
        (BOTH, ["zz=x.json"], "there is no configuration zz; configurations: base, tuned"),
        (CANDIDATES, ["x.json"], "there is no baseline among the configurations; write"),
        (BOTH, ["tuned"], "a baseline is stored as JSON; name a file that ends in .json"),
        (BOTH, ["tuned="], "a baseline is stored as JSON"),
        (BOTH, ["dir.json"], "is a directory; choose a writable place"),
        (BOTH, ["spec.yaml/x.json"], "is a file, not a directory; choose a writable place"),
        (BOTH, ["x.json", "tuned=x.json"], "two records would go into one file; name another file"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, spec: str, given: list[str], message: str) -> None:
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(UsageError) as caught:
        save_requests(given, tmp_path, load(tmp_path, spec))
    assert str(caught.value).startswith(f"--tokenwatt-save-baseline={given[0]}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- storing it

MADE = Provenance(recorded="2026-11-30T11:00:00+00:00", tool="pytest-tokenwatt 1.0", command=("pytest",))


def saved(tmp_path: Path, of: ConfigRecord) -> tuple[ConfigRecord, tuple[str, ...]]:
    path = tmp_path / "main.json"
    notes = save_baseline(path, of, source=None, gates=IDS, made=MADE)
    return read_baseline(path, NOW).record, notes


def test_a_record_of_this_session_gets_its_provenance_and_its_gates(tmp_path: Path) -> None:
    found, notes = saved(tmp_path, record(provenance=Provenance()))
    assert found.provenance == replace(MADE, gates=IDS)
    assert notes == (f"base is stored as baseline in {tmp_path / 'main.json'}",)


def test_a_replayed_record_keeps_the_time_it_was_measured(tmp_path: Path) -> None:
    found, _ = saved(tmp_path, record(provenance=Provenance(recorded="2026-11-18T09:30:00+00:00", driver="570")))
    assert found.provenance == Provenance(recorded="2026-11-18T09:30:00+00:00", driver="570", gates=IDS)
    foreign, _ = saved(tmp_path, record(provenance=Provenance(), stored=StoredFigures("lab report")))
    assert foreign.provenance == Provenance(gates=IDS)


def test_a_promoted_candidate_is_a_baseline_under_its_own_key(tmp_path: Path) -> None:
    found, _ = saved(tmp_path, record(key="tuned", role="tuned", like="base"))
    assert (found.key, found.role, found.like) == ("tuned", "baseline", None)


def test_a_simulated_baseline_is_stored_and_that_is_said(tmp_path: Path) -> None:
    _, notes = saved(tmp_path, record(identity=ServedIdentity(model_ids=("m",), simulated=True)))
    assert notes[-1] == "it is of the simulated engine: nothing real can be compared with it"
