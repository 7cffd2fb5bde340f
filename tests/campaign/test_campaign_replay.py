"""Published records judged again: exactly as they were published, and never better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.campaign.desk import LabOptions
from pytest_tokenwatt.campaign.promotion import promoted
from pytest_tokenwatt.campaign.saving import Course, SaveRequest
from pytest_tokenwatt.errors import NothingRuns, NotMeasured, UsageError
from pytest_tokenwatt.records import Verdict
from pytest_tokenwatt.replay import ReplayLab, open_replay, replay_lab
from pytest_tokenwatt.store.baselines import write_baseline
from pytest_tokenwatt.store.records_json import write_record
from pytest_tokenwatt.store.replay.read import read_stored

REFERENCE = Path(__file__).resolve().parents[1] / "report" / "reference"
TWICE = ("pass", "fail", "pass")


def replayed(tmp_path: Path, *names: str, **settings: Any) -> ReplayLab:
    return open_replay([REFERENCE / f"{name}.json" for name in names], out=tmp_path / "out", **settings)


def verdicts(lab: ReplayLab) -> dict[str, Verdict]:
    return {f"{gate.config}::{gate.gate}": lab.judge(gate).verdict for gate in lab.gates}


class Quiet:
    def line(self, text: str) -> None:
        """Nothing is shown."""


def report_of(lab: ReplayLab) -> Mapping[str, Any]:
    done = lab.finish()
    assert done is not None
    return done.report


def test_one_published_report_fails_exactly_its_accuracy(tmp_path: Path) -> None:
    lab = replayed(tmp_path, "lab-kv-cache")
    found = verdicts(lab)
    assert [name for name, verdict in found.items() if verdict is Verdict.FAIL] == ["tuned::accuracy[gsm8k-5shot]"]
    assert {verdict for name, verdict in found.items() if "accuracy" not in name} == {Verdict.PASS, Verdict.INFO}
    done = lab.finish()
    assert done is not None
    assert (done.exit_code, done.report["status"]) == (1, "draft")
    assert done.report["replayed"] == ["lab-kv-cache.json"]


def test_another_one_shows_no_measurable_difference(tmp_path: Path) -> None:
    lab = replayed(tmp_path, "lab-moe-kernels")
    assert set(verdicts(lab).values()) == {Verdict.PASS, Verdict.INFO}
    done = lab.finish()
    assert done is not None
    assert (done.exit_code, done.report["status"]) == (0, "published")
    assert "no measurable difference" in " ".join(done.table(120, False).split())


def test_the_submission_qualifies_as_it_was_published(tmp_path: Path) -> None:
    lab = replayed(tmp_path, "submission-fp8-chunked-prefill")
    assert set(verdicts(lab).values()) == {Verdict.PASS}
    (entry,) = [each for each in report_of(lab)["configs"] if each["role"] != "baseline"]
    result = entry["submission"]["result"]
    assert (result["admitted"], result["qualified"], result["quality"]["tier"]) == (True, True, "A")
    assert result["efficiency_gain"] == pytest.approx(1.5388, abs=1e-4)
    assert result["score"] == pytest.approx(1.4563, abs=3e-4)


def test_a_submission_far_below_its_baseline_does_not_qualify(tmp_path: Path) -> None:
    content = json.loads((REFERENCE / "submission-fp8-chunked-prefill.json").read_text(encoding="utf-8"))
    content["result"]["mean_drop"] = 0.1
    (tmp_path / "worse.json").write_text(json.dumps(content), encoding="utf-8")
    lab = open_replay([tmp_path / "worse.json"], out=tmp_path / "out")
    found = verdicts(lab)
    assert found["tuned::accuracy[mean]"] is Verdict.FAIL
    assert found["tuned::score"] is Verdict.FAIL


def test_values_are_read_and_an_engine_is_not_to_be_had(tmp_path: Path) -> None:
    lab = replayed(tmp_path, "lab-kv-cache")
    assert lab.goodput("tuned").tok_s == 5056.9
    assert lab.energy("baseline").tokens_per_joule == pytest.approx(7.178, abs=1e-3)
    with pytest.raises(NothingRuns):
        lab.engine("tuned")
    with pytest.raises(NotMeasured):
        lab.kl_drift("tuned")


def test_files_that_do_not_go_together_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both hold configuration baseline"):
        replayed(tmp_path, "lab-kv-cache", "lab-moe-kernels")
    with pytest.raises(UsageError, match="there is nothing to replay"):
        open_replay([])
    with pytest.raises(UsageError, match="holds 2 configurations"):
        replayed(tmp_path, "lab-kv-cache", roles=["baseline"])


def test_the_limits_of_a_given_spec_win(tmp_path: Path) -> None:
    stored = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))["spec"]
    spec = {**stored, "gates": {"goodput": {"min": 1.5}}, "accuracy": {**stored["accuracy"], "max_drop_pts": 20.0}}
    (tmp_path / "other.json").write_text(json.dumps(spec), encoding="utf-8")
    found = verdicts(replayed(tmp_path, "lab-kv-cache", spec=tmp_path / "other.json"))
    assert found["tuned::goodput"] is Verdict.FAIL
    assert found["tuned::accuracy[gsm8k-5shot]"] is Verdict.PASS


def test_what_the_spec_asks_for_and_nobody_stored_is_inconclusive(tmp_path: Path) -> None:
    stored = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))["spec"]
    spec = {**stored, "profiles": {"serve": {}}, "drift": {"sequences": 8}}
    (tmp_path / "more.json").write_text(json.dumps(spec), encoding="utf-8")
    lab = replayed(tmp_path, "lab-kv-cache", spec=tmp_path / "more.json")
    for gate in lab.gates:
        if gate.kind in ("speed", "memory", "kl"):
            result = lab.judge(gate)
            assert (result.verdict, result.reasons[0].code) == (Verdict.INCONCLUSIVE, "not_stored")
    assert {"speed", "memory", "kl"} <= {gate.kind for gate in lab.gates}


def notes_of(lab: ReplayLab) -> str:
    verdicts(lab)
    done = lab.finish()
    assert done is not None
    return "\n".join(done.notes)


def test_a_given_spec_of_another_measurement_is_told_and_other_limits_are_not(tmp_path: Path) -> None:
    stored = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))["spec"]
    limits = {**stored, "accuracy": {**stored["accuracy"], "max_drop_pts": 20.0}, "gates": {"goodput": {"min": 1.5}}}
    other = {**stored, "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": 30}, "workload": {"input_tokens": 77}}
    for name, spec in (("limits", limits), ("other", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(spec), encoding="utf-8")
    assert "measured under" not in notes_of(replayed(tmp_path, "lab-kv-cache", spec=tmp_path / "limits.json"))
    told = notes_of(replayed(tmp_path, "lab-kv-cache", spec=tmp_path / "other.json"))
    assert "lab-kv-cache.json was measured under another workload than other.json asks for" in told


def test_a_verdict_that_its_report_does_not_bear_out_is_told(tmp_path: Path) -> None:
    report = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))
    gates = [
        {"id": f"tuned::{gate}", "config": "tuned", "gate": gate, "verdict": "fail"} for gate in ("slo", "goodput")
    ]
    gates += [{"id": "tuned::contract", "config": "tuned", "gate": "contract", "verdict": verdict} for verdict in TWICE]
    (tmp_path / "own.json").write_text(json.dumps({**report, "gates": gates}), encoding="utf-8")
    lab = open_replay([tmp_path / "own.json"], out=tmp_path / "out")
    told = notes_of(lab)
    assert "tuned goodput is stored as fail; what is stored of it gives pass" in told
    assert "accuracy" not in told
    assert verdicts(lab)["tuned::contract"] is Verdict.FAIL


def test_a_score_of_no_answers_is_a_contradiction(tmp_path: Path) -> None:
    report = json.loads((REFERENCE / "lab-moe-kernels.json").read_text(encoding="utf-8"))
    for row in report["configs"]:
        row["accuracy"]["n"] = 0
    (tmp_path / "none.json").write_text(json.dumps(report), encoding="utf-8")
    found = verdicts(open_replay([tmp_path / "none.json"], out=tmp_path / "out"))
    assert found["tuned::accuracy[gsm8k-5shot]"] is Verdict.INVALID


def test_places_that_a_replay_cannot_write_are_found_before_it_judges(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    own = tmp_path / "own.json"
    own.write_bytes((REFERENCE / "lab-moe-kernels.json").read_bytes())
    options = LabOptions(tmp_path, (), out=tmp_path / "notes/run", reports=(tmp_path, own), replays=(own,))
    lab = replay_lab(None, options, Quiet())
    found = [(problem.key, problem.what) for problem in lab.preflight(lab.gates) if problem.severity == "error"]
    assert found == [
        ("--tokenwatt-out", f"{tmp_path / 'notes'} is a file, not a directory"),
        ("--tokenwatt-report", f"{tmp_path} is a directory"),
        ("--tokenwatt-report", f"{own} is what is read here: it would be written over"),
    ]


def test_a_stored_baseline_beside_a_replayed_one_is_said_to_be_unused(tmp_path: Path) -> None:
    base = read_stored(REFERENCE / "lab-kv-cache.json").records[0]
    write_baseline(tmp_path / "main.json", base, {})
    lab = replayed(tmp_path, "lab-moe-kernels", baselines=[tmp_path / "main.json"])
    assert "the replayed files hold the baseline, so that main.json is not used" in notes_of(lab)


def test_a_record_replayed_against_a_copy_of_itself_compares_nothing(tmp_path: Path) -> None:
    tuned = read_stored(REFERENCE / "lab-moe-kernels.json").records[1]
    write_record(tmp_path / "tuned.json", tuned)
    write_baseline(tmp_path / "main.json", promoted(tuned), {})
    lab = open_replay([tmp_path / "tuned.json"], out=tmp_path / "out", baselines=[tmp_path / "main.json"])
    assert verdicts(lab)["tuned::goodput"] is Verdict.INVALID
    assert "difference" not in report_of(lab)["summary"]


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (("pytest", "--tokenwatt-baseline=base/main.json"), Verdict.INCONCLUSIVE),
        (("pytest", "--tokenwatt-baseline", "base/main.json"), Verdict.INCONCLUSIVE),
        (("pytest",), Verdict.FAIL),
    ],
)
def test_a_run_that_compared_with_a_stored_baseline_says_so_without_it(
    tmp_path: Path, command: tuple[str, ...], verdict: Verdict
) -> None:
    tuned = read_stored(REFERENCE / "lab-moe-kernels.json").records[1]
    write_record(tmp_path / "tuned.json", replace(tuned, provenance=replace(tuned.provenance, command=command)))
    lab = open_replay([tmp_path / "tuned.json"], out=tmp_path / "out")
    (goodput,) = [lab.judge(gate) for gate in lab.gates if gate.kind == "goodput"]
    assert goodput.verdict is verdict
    assert ("base/main.json; name it" in goodput.reasons[0].text) == (verdict is Verdict.INCONCLUSIVE)


def edited(tmp_path: Path, name: str, *changes: tuple[tuple[Any, ...], Any]) -> ReplayLab:
    """A published file with other values at some places."""
    content = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    for place, value in changes:
        holder = content
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = value
    (tmp_path / "edited.json").write_text(json.dumps(content), encoding="utf-8")
    return open_replay([tmp_path / "edited.json"], out=tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [(("configs", 1, "slo_pass_count"), 0), (("configs", 1, "slo_pass_count"), 1), (("configs", 1, "tpot_p99_ms"), 60)],
)
def test_a_rate_that_fails_its_slo_has_no_goodput(tmp_path: Path, change: tuple[tuple[Any, ...], Any]) -> None:
    lab = edited(tmp_path, "lab-kv-cache", change)
    found, report = verdicts(lab), report_of(lab)
    assert found["tuned::slo"] is found["tuned::goodput"] is Verdict.FAIL
    assert report["configs"][1]["goodput_tok_s"] is None
    assert "raised" not in report["summary"]


def test_a_baseline_that_fails_its_slo_is_nothing_to_compare_with(tmp_path: Path) -> None:
    lab = edited(tmp_path, "lab-kv-cache", (("configs", 0, "slo_pass_count"), 0), (("configs", 0, "goodput_tok_s"), 10))
    assert verdicts(lab)["tuned::goodput"] is Verdict.INVALID


def test_goodput_beyond_all_output_is_a_contradiction(tmp_path: Path) -> None:
    assert (
        verdicts(edited(tmp_path, "lab-kv-cache", (("configs", 1, "output_tok_s"), 5000)))["tuned::goodput"]
        is Verdict.INVALID
    )


def test_goodput_that_its_own_energy_denies_is_a_contradiction(tmp_path: Path) -> None:
    changes = ((("configs", 1, "tokens_per_joule"), 5056.9 / 616), (("configs", 1, "goodput_tok_s"), 9000))
    assert verdicts(edited(tmp_path, "lab-kv-cache", *changes))["tuned::goodput"] is Verdict.INVALID


def test_a_suite_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    good, bad = ({"suite": "gsm8k-5shot", "score": score} for score in (96.0, 88.0))
    with pytest.raises(UsageError, match=r"configs\[1\]\.accuracy\[1\]: there is another entry of the suite gsm8k"):
        edited(tmp_path, "lab-kv-cache", (("configs", 1, "accuracy"), [bad, good]))


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    text = (REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8")
    (tmp_path / "twice.json").write_text('{"configs": [], ' + text.lstrip().removeprefix("{"), encoding="utf-8")
    with pytest.raises(UsageError, match="the key 'configs' stands twice"):
        open_replay([tmp_path / "twice.json"], out=tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value"), [("limit", 200), ("suite", "suites/other.jsonl"), ("scorer", "exact"), ("max_tokens", 16)]
)
def test_suites_that_were_asked_otherwise_are_not_compared(tmp_path: Path, key: str, value: Any) -> None:
    content = json.loads((REFERENCE / "lab-moe-kernels.json").read_text(encoding="utf-8"))
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    content["configs"], configs = content["configs"][:1], content["configs"]
    paths[0].write_text(json.dumps(content), encoding="utf-8")
    content["configs"] = configs[1:2]
    content["spec"]["accuracy"][key] = value
    paths[1].write_text(json.dumps(content), encoding="utf-8")
    lab = open_replay(paths, out=tmp_path / "out", roles=("baseline", "tuned"), keeps=False)
    (accuracy,) = [lab.judge(gate) for gate in lab.gates if gate.kind == "accuracy"]
    assert accuracy.verdict is Verdict.INVALID
    assert accuracy.reasons[0].code == "suite_differs"


def test_the_items_of_a_score_are_those_that_its_own_spec_asked_for(tmp_path: Path) -> None:
    report = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))
    del report["spec"]["accuracy"]["limit"]
    (tmp_path / "given.json").write_text(json.dumps(report["spec"]), encoding="utf-8")
    lab = replayed(tmp_path, "lab-kv-cache", spec=tmp_path / "given.json")
    (accuracy,) = [lab.judge(gate) for gate in lab.gates if gate.gate.startswith("accuracy") and gate.config == "tuned"]
    assert "(50 items)" in accuracy.text


def test_a_control_beyond_the_limit_hides_what_is_looked_for(tmp_path: Path) -> None:
    noise = ((("result", "kl", "kl"), 0.5), (("result", "kl", "identity", "kl"), 0.5))
    lab = edited(tmp_path, "submission-fp8-chunked-prefill", *noise)
    (kl,) = [lab.judge(gate) for gate in lab.gates if gate.kind == "kl"]
    assert (kl.verdict, kl.reasons[0].code) == (Verdict.INCONCLUSIVE, "control_too_large")


def test_a_record_that_does_not_qualify_is_reported_so(tmp_path: Path) -> None:
    lab = edited(tmp_path, "submission-fp8-chunked-prefill", (("result", "qualified"), False))
    (score,) = [lab.judge(gate) for gate in lab.gates if gate.kind == "score"]
    report = report_of(lab)
    assert score.verdict is Verdict.FAIL
    assert "qualified in tier" not in report["summary"]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("perplexity", {("result", "kl", "ppl", "hidden", "ppl"): 40.0}),
        ("budget", {("result", "engine", "budget", "serve@1.02", "running"): 3.0}),
        ("budget", {("result", "engine", "budget", "serve@1.02", "value"): None}),
        ("audit", {("result", "timed_audit", "serve", "samples"): 0}),
    ],
)
def test_figures_of_a_submission_that_their_own_parts_deny_do_not_pass(
    tmp_path: Path, kind: str, changes: dict[tuple[Any, ...], Any]
) -> None:
    lab = edited(tmp_path, "submission-fp8-chunked-prefill", *changes.items())
    found = [lab.judge(gate) for gate in lab.gates if gate.kind in (kind, "score")]
    assert Verdict.PASS not in {each.verdict for each in found if each.gate in (kind, f"{kind}[hidden]")}
    assert [each.verdict for each in found if each.gate == "score"] != [Verdict.PASS] or kind == "perplexity"


def test_a_rule_of_a_test_that_failed_in_its_own_run_is_told_and_its_record_is_not_promoted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for record in read_stored(REFERENCE / "lab-moe-kernels.json").records[:2]:
        write_record(run / f"record-{record.key}.json", record)
    gates = [{"id": "tuned::too many", "verdict": "fail"}, {"id": "tuned::goodput", "verdict": "pass"}]
    (run / "report.json").write_text(json.dumps({"gates": gates}), encoding="utf-8")
    lab = open_replay([run], out=tmp_path / "out")
    told = notes_of(lab)
    assert "tuned too many is stored as fail, and nothing here judges it" in told
    course = Course(tuple(f"{gate.config}::{gate.gate}" for gate in lab.gates))
    (line,) = lab.save_baselines([SaveRequest("tuned", tmp_path / "base.json")], course)
    assert line.endswith("is not stored as baseline: in its own run, and not judged here: tuned::too many fail")
    assert not (tmp_path / "base.json").exists()


@pytest.mark.parametrize("gone", [None, {}, {"serve": {"status": "missing"}}])
def test_a_submission_that_lost_its_audits_does_not_qualify_by_that(tmp_path: Path, gone: Any) -> None:
    places = (("result", "timed_audit"), ("result", "engine", "audit"))
    lab = edited(tmp_path, "submission-fp8-chunked-prefill", *((place, gone) for place in places))
    found = verdicts(lab)
    assert found["tuned::audit"] is Verdict.INCONCLUSIVE
    assert found["tuned::score"] is not Verdict.PASS
