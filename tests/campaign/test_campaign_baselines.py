"""Stored baselines: which one counts, what candidates are scored on, and which gates changed since."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.campaign.baselines import captured, gates_changed, reference_for, stored_baseline
from pytest_tokenwatt.campaign.capture import Capture, Corpus, drift_file, store_scores
from pytest_tokenwatt.campaign.promotion import promoted
from pytest_tokenwatt.campaign.saving import save_baseline
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.divergence import kl_delta, perplexity_delta
from pytest_tokenwatt.gates.shifts import length_delta
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.records import ConfigRecord, Reason, ServedIdentity, SuiteRecord, drift
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord, ProfileRun
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.baselines import StoredBaseline, read_baseline

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SEQUENCES = (drift.Sequence("a/0", (5, 6, 7, 8), 2), drift.Sequence("b/1", (1, 2, 3), 2))
WINDOWS = (drift.Sequence("river/0", (9, 8, 7), 1),)
DRIFT = """
accuracy: {suite: gsm8k.jsonl}
drift:
  prompts: prompts.jsonl
  tokens: 128
  perplexity: [{name: river, file: river.txt, window: 64, windows: 1}]
"""
BOTH = "configs: [{key: base, role: baseline}, {key: tuned, role: tuned}]\n"


def load(directory: Path, text: str) -> Spec:
    path = directory / "spec.yaml"
    path.write_text(
        f"name: n\nengine: {{endpoint: 'http://127.0.0.1:1/v1', model: m}}\nslo: {{ttft_p99_ms: 9}}\n{text}",
        encoding="utf-8",
    )
    return load_spec(path, {})


def tops(sequences: tuple[drift.Sequence, ...]) -> tuple[drift.TopK, ...]:
    return tuple(_top(len(each.ids) - each.prompt) for each in sequences)


def _top(positions: int) -> drift.TopK:
    return drift.TopK(
        2, array("i", range(2 * positions)), array("f", [-0.5] * 2 * positions), array("f", [-0.5] * positions)
    )


def perplexity(**changes: Any) -> drift.PerplexityRecord:
    return replace(drift.PerplexityRecord("river", drift_sha256(WINDOWS), 1, 2, (0.5,), math.exp(0.5)), **changes)


def divergence(kl: float) -> drift.Divergence:
    return drift.Divergence(kl, 0.0001, kl, 0.0001, kl, 0.0001, kl, kl, 0.0, 1.0, 2, 2, 3, 0)


def record(key: str = "base", role: str = "baseline", spec: Mapping[str, Any] | None = None) -> ConfigRecord:
    own = role == "baseline"
    scored = drift.DriftRecord(
        sha256=drift_sha256(SEQUENCES),
        route="prompt_logprobs",
        k=2,
        sequences=2,
        tokens=3,
        against=None if own else divergence(0.01),
        control=divergence(0.0) if own else None,
        perplexity={"river": perplexity()},
        file=f"drift-{key}.npz",
        answers=tuple(drift.AnswerLength(f"p/{number}", 20 + number) for number in range(40)),
        answers_sha256="ef",
    )
    return ConfigRecord(
        key=key,
        role=role,
        label=f"vllm-{key}",
        like=None,
        identity=None,
        fingerprint="print",
        contract=None,
        scenarios={},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
        spec=spec or {},
        drift=scored,
        provenance=Provenance(recorded="2026-11-18T09:30:00+00:00"),
    )


def stored(record: ConfigRecord, name: str = "main.json", recorded: str | None = "2026-11-18T09:30:00Z") -> Any:
    dated = replace(record, provenance=replace(record.provenance, recorded=recorded))
    return StoredBaseline(dated, Path(name), f"recorded {recorded}")


# --- which one counts


def test_the_newest_is_the_reference_and_all_have_the_key_of_the_specs_baseline(tmp_path: Path) -> None:
    files = [
        stored(record("a"), "old.json", "2026-11-18T09:30:00+00:00"),
        stored(record("b"), "new.json", "2026-11-18T12:30:00+02:00"),
        stored(record("c"), "undated.json", None),
    ]
    found = stored_baseline(load(tmp_path, BOTH), files)
    assert found.chosen is files[1]
    assert found.record == replace(files[1].record, key="base")
    assert [each.label for each in found.baselines] == ["vllm-b", "vllm-a", "vllm-c"]
    assert {each.key for each in found.baselines} == {"base"}
    assert found.notes[0] == "baseline: new.json (vllm-b), recorded 2026-11-18T12:30:00+02:00"
    assert found.notes[1].startswith("3 stored baselines give the spread between runs; beside the newest: old.json")


def ran_on(gpu: str, driver: str, version: str) -> ConfigRecord:
    gpus = (SensorInfo("GPU-0", gpu, limit_w=700.0, driver=driver),)
    return replace(record(), gpus=gpus, identity=ServedIdentity(("m",), version=version), fingerprint=version)


def test_baselines_of_different_machines_give_no_spread_unless_that_is_allowed(tmp_path: Path) -> None:
    spec = load(tmp_path, BOTH)
    files = [
        stored(ran_on("H200", "570", "0.30"), "old.json", "2026-11-18T09:30:00Z"),
        stored(ran_on("H100", "580", "0.31"), "new.json", "2026-11-19T09:30:00Z"),
    ]
    with pytest.raises(UsageError) as caught:
        stored_baseline(spec, files)
    told = str(caught.value)
    assert told.startswith("--tokenwatt-baseline: new.json and old.json give no spread between runs: ")
    assert "new.json ran under driver 580, old.json 570; new.json ran on H100, old.json on H200" in told
    flags = "--tokenwatt-allow-diff=driver --tokenwatt-allow-diff=hardware"
    assert told.endswith(f"; leave one out, or compare all the same with {flags}")
    with pytest.raises(UsageError, match=r"with --tokenwatt-allow-diff=hardware$"):
        stored_baseline(spec, files, frozenset({"driver"}))
    notes = stored_baseline(spec, files, frozenset({"driver", "hardware"})).notes
    assert "new.json and old.json differ in driver and hardware; their spread holds that, too" in notes
    assert "new.json and old.json are of engine 0.31 and 0.30; their spread holds that, too" in notes


def test_baselines_of_different_workloads_give_no_spread(tmp_path: Path) -> None:
    run = ProfileRun("r0", 1.0, 5, 5.0, 1, 0, 1.0, 0.1)
    loads = [ProfileRecord("serve", 1, 8, 8, 1, (run,), 5.0, PeakMemory(), sha) for sha in ("aa", "bb")]
    files = [stored(replace(record(), profiles={"serve": each}), f"{each.load_sha256}.json") for each in loads]
    with pytest.raises(UsageError, match=r"aa.json and bb.json were offered different workloads; .*=workload$"):
        stored_baseline(load(tmp_path, BOTH), files)


@pytest.mark.parametrize(
    ("configs", "own", "key"),
    [
        ("", "main", "main"),
        ("configs: [{key: main, role: tuned}]\n", "main", "baseline"),
        ("configs: [{key: main, role: tuned}, {key: baseline, role: tuned}]\n", "main", "stored-baseline"),
        (
            "configs: [{key: stored-baseline, role: tuned}, {key: baseline, role: other}]\n",
            "baseline",
            "stored-baseline-2",
        ),
    ],
)
def test_without_a_baseline_in_the_spec_its_key_is_no_candidates(
    tmp_path: Path, configs: str, own: str, key: str
) -> None:
    spec = load(tmp_path, configs)
    spec = spec if configs else spec.with_role("tuned")
    assert stored_baseline(spec, [stored(record(own))]).record.key == key


def test_a_candidates_record_is_taken_as_a_baseline_and_that_is_said(tmp_path: Path) -> None:
    found = stored_baseline(load(tmp_path, BOTH), [stored(record("tuned", "tuned"))])
    assert (found.record.key, found.record.role) == ("base", "baseline")
    assert found.notes[1] == "main.json: tuned was measured as tuned, not as a baseline"


def test_gates_that_changed_and_unknown_keys_are_noted(tmp_path: Path) -> None:
    before = record()
    before = replace(before, provenance=replace(before.provenance, gates=("base::contract", "tuned::kl")))
    noted = replace(stored(before), notes=("main.json: unknown key x left out",))
    notes = stored_baseline(load(tmp_path, BOTH), [noted]).notes
    assert "main.json: unknown key x left out" in notes
    assert {"new gate base::slo", "gate tuned::kl has vanished"} <= set(notes)
    assert not any("base::contract" in note for note in notes)


# --- a candidate's record as a baseline


def test_what_a_candidate_says_of_its_baseline_goes() -> None:
    run = ProfileRun("r0", 1.0, 5, 5.0, 1, 0, 1.0, 0.1)
    profile = ProfileRecord("serve", 1, 8, 8, 1, (run,), 5.0, PeakMemory(), "ab", paired=(run,))
    figures = StoredFigures(
        "submission",
        band_pct=2.0,
        delta_pts={"gsm8k": 1.0},
        drift_points=0.5,
        verdicts={"contract": "pass", "slo[rag]": "pass", "kl": "pass"},
    )
    candidate = replace(
        record("tuned", "tuned"),
        like="base",
        profiles={"serve": profile},
        audits={"serve": AuditRecord("serve", "audited", 1, 1, 0, 0, 0)},
        stored=figures,
    )
    found = promoted(candidate)
    assert (found.key, found.role, found.like, found.audits) == ("tuned", "baseline", None, {})
    assert found.profiles["serve"] == replace(profile, paired=())
    verdicts = {"contract": "pass", "slo[rag]": "pass"}
    assert found.stored == StoredFigures("submission", band_pct=2.0, verdicts=verdicts)
    assert promoted(found) is found


@pytest.mark.parametrize("control", [True, False])
def test_a_divergence_from_another_baseline_never_counts_as_one_from_the_promoted(control: bool) -> None:
    """Both candidates were scored on the same ids, of an engine that is neither of them."""
    base, candidate = promoted(record("tuned", "tuned")), record("other", "tuned")
    delta = kl_delta(candidate, base, control=control)
    assert [fault.code for fault in delta.faults] == ["baseline_invalid"]
    assert "not_captured: tuned was scored as a candidate" in delta.faults[0].text
    assert not kl_delta(candidate, record(), control=control).faults


def test_texts_and_answers_of_a_promoted_candidate_still_compare() -> None:
    candidate = record("other", "tuned")
    base = promoted(record("tuned", "tuned"))
    assert perplexity_delta("river", candidate, base).dnll == 0.0
    assert not length_delta((), candidate, base, drift=True).faults
    cut = replace(record("tuned", "tuned").drift, perplexity={"river": perplexity(base_nll=(0.4,))})  # type: ignore[type-var]
    assert promoted(replace(record("tuned", "tuned"), drift=cut)).drift.perplexity == {}  # type: ignore[union-attr]


# --- drift


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with what was scored of the baseline."""
    store_scores(
        drift_file(tmp_path, "base"), SEQUENCES, tops(SEQUENCES), model="m", fingerprint="print", probes={"Q": (5,)}
    )
    store_scores(drift_file(tmp_path, "base", "river"), WINDOWS, tops(WINDOWS), model="m", fingerprint="print")
    return tmp_path


def save(run_dir: Path, of: ConfigRecord, source: Path | None) -> tuple[StoredBaseline, tuple[str, ...]]:
    path = run_dir / "baselines" / "main.json"
    notes = save_baseline(path, of, source=source, gates=("base::slo",), made=Provenance())
    return read_baseline(path, NOW), notes


def test_the_capture_of_a_saved_baseline_is_that_of_the_run(run_dir: Path) -> None:
    spec = load(run_dir, BOTH + DRIFT)
    saved, _ = save(run_dir, record(spec=spec.raw), run_dir)
    expected = Capture(SEQUENCES, tops(SEQUENCES), {"river": Corpus(WINDOWS, tops(WINDOWS))}, {"Q": (5,)})
    assert captured(saved, spec) == expected
    again, _ = save(run_dir / "elsewhere", saved.record, saved.path.parent)
    assert captured(again, spec) == expected
    in_place = StoredBaseline(record(spec=spec.raw), run_dir / "record-base.json", "")
    assert captured(in_place, spec) == expected
    renamed = stored_baseline(load(run_dir, BOTH.replace("base,", "b16,") + DRIFT), [again])
    assert captured(renamed.chosen, spec) == expected


@pytest.mark.parametrize(
    ("change", "code", "what"),
    [
        ("tokens: 64", "other_drift", "main.json was captured with another tokens"),
        ("top_k: 5\n  tokens: 128", "other_drift", "main.json was captured with another top_k"),
        ("sequences: 9\n  tokens: 128", None, ""),
        ("top_k: 20\n  tokens: 128", None, ""),
    ],
)
def test_a_capture_of_other_settings_is_refused(run_dir: Path, change: str, code: str | None, what: str) -> None:
    saved, _ = save(run_dir, record(spec=load(run_dir, BOTH + DRIFT).raw), run_dir)
    found = captured(saved, load(run_dir, BOTH + DRIFT.replace("tokens: 128", change)))
    assert (None if isinstance(found, Capture) else found) == (code and Reason(code, what))


def test_texts_are_those_that_the_spec_has_now(run_dir: Path) -> None:
    saved, _ = save(run_dir, record(spec=load(run_dir, BOTH + DRIFT).raw), run_dir)
    more = DRIFT.replace("[{", "[{name: sea, file: sea.txt}, {").replace("window: 64", "window: 32")
    found = captured(saved, load(run_dir, BOTH + more))
    assert isinstance(found, Capture)
    codes = {name: each.code for name, each in found.corpora.items() if isinstance(each, Reason)}
    assert codes == {"sea": "not_captured", "river": "other_drift"}
    none = captured(saved, load(run_dir, BOTH + DRIFT.partition("  perplexity")[0]))
    assert isinstance(none, Capture)
    assert none.corpora == {}


def test_why_there_is_no_capture(run_dir: Path) -> None:
    spec = load(run_dir, BOTH + DRIFT)
    saved, _ = save(run_dir, record(spec=spec.raw), run_dir)
    for changed, text in (
        (replace(saved.record, drift=None), "holds no drift"),
        (replace(saved.record, role="tuned"), "base was scored as a candidate"),
        (replace(saved.record, fingerprint="another"), "another engine was scored"),
        (replace(saved.record, drift=replace(record().drift, file="../drift-base.npz")), "there are no scores"),  # type: ignore[type-var]
    ):
        found = captured(replace(saved, record=changed), spec)
        assert isinstance(found, Reason)
        assert text in found.text
    saved.path.with_name("main.drift.npz").write_bytes(b"nonsense")
    damaged = captured(saved, spec)
    assert isinstance(damaged, Reason)
    assert "damaged" in damaged.text
    unasked = captured(saved, load(run_dir, BOTH))
    assert isinstance(unasked, Reason)


def test_a_baseline_without_usable_scores_is_saved_without_and_that_is_said(run_dir: Path) -> None:
    drift_file(run_dir, "base", "river").unlink()
    for source in (run_dir, None):
        saved, notes = save(run_dir, record(), source)
        assert saved.record.drift is not None
        assert saved.record.drift.file is None
        assert notes[1].startswith("its drift is not stored, so that no candidate can be scored against it: ")


# --- gates


@pytest.mark.parametrize(
    ("then", "now", "lines"),
    [
        (["a::slo"], ["a::slo"], []),
        ([], ["a::slo"], ["new gate a::slo"]),
        (["a::slo"], [], ["gate a::slo has vanished"]),
        (["a::rule[p50]"], ["a::rule[ttft-p50]"], ["gate a::rule[p50] was renamed to a::rule[ttft-p50]"]),
        (["a::slo"], ["a::slo[rag]"], ["gate a::slo was renamed to a::slo[rag]"]),
        (["tuned::slo"], ["tuned2::slo"], ["gate tuned::slo was renamed to tuned2::slo"]),
        (["a::my rule"], ["a::my rules"], ["gate a::my rule was renamed to a::my rules"]),
        (["a::kl"], ["a::budget"], ["new gate a::budget", "gate a::kl has vanished"]),
        (["int4::kl"], ["fp8::kl"], ["new gate fp8::kl", "gate int4::kl has vanished"]),
        (
            ["a::speed", "a::score"],
            ["a::memory"],
            ["new gate a::memory", "gate a::speed has vanished", "gate a::score has vanished"],
        ),
        (
            ["a::accuracy[gsm8k]", "a::accuracy[mmlu]"],
            ["a::accuracy[mmlu-pro]"],
            ["gate a::accuracy[mmlu] was renamed to a::accuracy[mmlu-pro]", "gate a::accuracy[gsm8k] has vanished"],
        ),
    ],
)
def test_gates_that_came_went_or_were_renamed(then: list[str], now: list[str], lines: list[str]) -> None:
    assert list(gates_changed(then, now)) == lines


identities = st.builds(
    "{}::{}{}".format,
    st.sampled_from(["base", "tuned", "fp8"]),
    st.sampled_from(["slo", "kl", "rule", "accuracy", "own"]),
    st.sampled_from(["", "[a]", "[ab]", "[xyz]", "[rag]"]),
)


@given(st.lists(identities, max_size=8), st.lists(identities, max_size=8))
def test_every_gate_that_differs_is_told_exactly_once(then: list[str], now: list[str]) -> None:
    gone: Counter[str] = Counter()
    come: Counter[str] = Counter()
    for line in gates_changed(then, now):
        old, renamed, new = line.removeprefix("gate ").partition(" was renamed to ")
        if renamed:
            gone[old] += 1
            come[new] += 1
        elif line.startswith("new gate "):
            come[line.removeprefix("new gate ")] += 1
        else:
            assert line.endswith(" has vanished")
            gone[old.removesuffix(" has vanished")] += 1
    assert gone == Counter(set(then) - set(now))
    assert come == Counter(set(now) - set(then))


@given(st.lists(identities, max_size=8), st.lists(identities, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_gates_changes_nothing(then: list[str], now: list[str], random: Any) -> None:
    told = set(gates_changed(then, now))
    random.shuffle(then)
    random.shuffle(now)
    assert set(gates_changed(then, now)) == told


@given(st.lists(identities, max_size=8), st.lists(identities, max_size=8))
def test_a_gate_of_the_same_kind_and_configuration_is_never_lost_and_found(then: list[str], now: list[str]) -> None:
    """What came and what went never share configuration and kind: that would have been a new name."""
    lines = gates_changed(then, now)
    came = {each.removeprefix("new gate ").partition("[")[0] for each in lines if each.startswith("new gate ")}
    went = {
        each.removeprefix("gate ").removesuffix(" has vanished").partition("[")[0]
        for each in lines
        if each.endswith(" has vanished")
    }
    assert came.isdisjoint(went)


# --- copies of one run


def measured(key: str = "base", role: str = "baseline", score: float = 90.0) -> ConfigRecord:
    suite = SuiteRecord(
        name="sums",
        suite="sums",
        sha256="ab",
        scorer="numeric",
        api="completions",
        shots=None,
        max_tokens=16,
        seeds=1,
        items=(),
        score=score,
        spread_pts=None,
        counts={},
        invalid=(),
    )
    return replace(record(key, role), suites={"sums": suite})


def test_copies_of_one_run_give_no_spread(tmp_path: Path) -> None:
    copies = [stored(measured(), "one.json"), stored(measured(), "copy.json"), stored(measured(score=91.0), "two.json")]
    found = stored_baseline(load(tmp_path, BOTH), copies)
    assert [each.suites["sums"].score for each in found.baselines] == [90.0, 91.0]
    assert "2 stored baselines give the spread" in found.notes[1]
    assert len(stored_baseline(load(tmp_path, BOTH), copies[:2]).baselines) == 1


def test_a_candidate_is_not_compared_with_a_copy_of_its_own_record() -> None:
    candidate = measured("tuned", "tuned")
    copy = replace(promoted(candidate), key="base")
    own = reference_for(candidate, copy)
    assert own is not None
    assert own.invalid[0].code == "same_record"
    assert reference_for(measured("tuned", "tuned", score=91.0), copy) is copy
    assert reference_for(candidate, None) is None
    assert reference_for(record("tuned", "tuned"), record()) == record()
