"""A baseline file comes back with its age and its drift, and is never half of one and half of another."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.drift import DriftRecord, PerplexityRecord
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.store import atomic, baselines
from pytest_tokenwatt.store.baselines import age_text, read_baseline, scores_name, write_baseline
from pytest_tokenwatt.store.records_json import write_run_record

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MADE = Provenance(
    recorded="2026-11-18T09:30:00+01:00",
    tool="pytest-tokenwatt 1.0",
    driver="570.1",
    command=("pytest", "--tokenwatt-spec=h100.yaml"),
    gates=("baseline::slo", "tuned::goodput"),
)


def baseline_record(label: str = "vllm-default", corpora: tuple[str, ...] = ("river",)) -> ConfigRecord:
    texts = {name: PerplexityRecord(name, "cd", 1, 2, (0.5,), math.exp(0.5)) for name in corpora}
    drift = DriftRecord("ab", "prompt_logprobs", 2, 2, 3, None, None, perplexity=texts, file="drift-baseline.npz")
    return ConfigRecord(
        key="baseline",
        role="baseline",
        label=label,
        like=None,
        identity=None,
        fingerprint="f",
        contract=None,
        scenarios={},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
        files=("engine-baseline.log",),
        drift=drift,
        provenance=MADE,
    )


def scored(directory: Path, content: str) -> dict[str | None, Path]:
    """Files of a run, as far as a baseline file looks at them."""
    directory.mkdir(exist_ok=True)
    files: dict[str | None, Path] = {}
    for corpus in (None, "river"):
        files[corpus] = directory / f"{corpus or 'drift'}.npz"
        files[corpus].write_bytes(f"{content} {corpus}".encode())
    return files


def companions(path: Path) -> list[bytes]:
    """What the baseline at ``path`` refers to, in the order drift, river."""
    file = read_baseline(path, NOW).record.drift
    assert file is not None
    assert file.file is not None
    names = (file.file, scores_name(file.file.removesuffix(baselines.SCORES), "river"))
    return [path.with_name(name).read_bytes() for name in names]


# --- round trip


def test_a_baseline_comes_back_with_its_provenance_and_its_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "baselines" / "main.json"
    stored = write_baseline(path, baseline_record(), scored(tmp_path / "run", "first"))
    found = read_baseline(path, NOW)
    assert found.record == stored
    assert found.record.provenance == MADE
    assert found.record.files == ()
    assert found.record.drift is not None
    assert found.record.drift.file == "main.drift.npz"
    assert (found.path, found.age_text, found.notes) == (path, "recorded 12 days ago (2026-11-18)", ())
    assert companions(path) == [b"first None", b"first river"]
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["main.drift.npz", "main.json", "perplexity-main-river.npz"]


def test_without_scores_the_record_names_none(tmp_path: Path) -> None:
    stored = write_baseline(tmp_path / "main.json", baseline_record(), {})
    assert stored.drift is not None
    assert stored.drift.file is None
    assert [each.name for each in tmp_path.iterdir()] == ["main.json"]
    assert write_baseline(tmp_path / "bare.json", replace(baseline_record(), drift=None), {}).drift is None


def test_two_baselines_of_one_key_share_a_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_baseline(tmp_path / f"{name}.json", baseline_record(name), scored(tmp_path / "run", name))
    assert companions(tmp_path / "a.json")[0] == b"a None"
    assert companions(tmp_path / "b.json")[0] == b"b None"


# --- storing over an earlier one


def test_a_new_baseline_takes_the_place_of_the_old_one_and_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    for content in ("first", "second", "second", "third"):
        write_baseline(path, baseline_record(content), scored(tmp_path / "run", content))
        assert read_baseline(path, NOW).record.label == content
        assert companions(path) == [f"{content} None".encode(), f"{content} river".encode()]
        assert len([each for each in tmp_path.iterdir() if each.suffix == ".npz"]) == 2
    write_baseline(path, baseline_record("bare"), {})
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["main.json"]


@pytest.mark.parametrize("fatal", [0, 1, 2])
def test_a_crash_between_files_leaves_the_old_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
    path = tmp_path / "main.json"
    write_baseline(path, baseline_record("first"), scored(tmp_path / "run", "first"))
    writes: list[Path] = []

    def dying(target: Path, data: bytes) -> None:
        if len(writes) == fatal:
            raise KeyboardInterrupt
        writes.append(target)
        real(target, data)

    real = atomic.write_bytes
    monkeypatch.setattr(atomic, "write_bytes", dying)
    monkeypatch.setattr(baselines, "write_bytes", dying)
    # A killed process tidies nothing up.
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    with pytest.raises(KeyboardInterrupt):
        write_baseline(path, baseline_record("second"), scored(tmp_path / "run", "second"))
    monkeypatch.undo()
    assert read_baseline(path, NOW).record.label == "first"
    assert companions(path) == [b"first None", b"first river"]
    write_baseline(path, baseline_record("second"), scored(tmp_path / "run", "second"))
    assert companions(path) == [b"second None", b"second river"]


def test_a_failed_write_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    write_baseline(path, baseline_record("first"), scored(tmp_path / "run", "first"))
    before = sorted(each.name for each in tmp_path.iterdir())
    broken = replace(baseline_record("second"), minutes={"search": float("nan")})
    with pytest.raises(ValueError, match=r"minutes\.search is not a finite number"):
        write_baseline(path, broken, scored(tmp_path / "run", "second"))
    with pytest.raises(OSError, match="gone"):
        write_baseline(path, baseline_record("second"), {None: tmp_path / "gone.npz"})
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert companions(path) == [b"first None", b"first river"]


def test_only_files_that_were_stored_with_a_baseline_are_removed(tmp_path: Path) -> None:
    """A record of a run directory that is written over names its own files, and a forged one anybody's."""
    own = tmp_path / "drift-baseline.npz"
    own.write_bytes(b"the run's")
    (tmp_path / "precious.npz").write_bytes(b"keep")
    path = tmp_path / "main.json"
    for file, corpora in (("drift-baseline.npz", ("river",)), ("main.drift.npz", ("/../../precious",))):
        write_run_record(path, [baseline_record("run", corpora)])
        content = json.loads(path.read_text(encoding="utf-8"))
        content["drift"]["file"] = file
        path.write_text(json.dumps(content), encoding="utf-8")
        write_baseline(path, baseline_record("new"), {})
        assert own.read_bytes() == b"the run's"
        assert (tmp_path / "precious.npz").exists()


# --- what cannot be read


def test_an_absent_baseline_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "gone.json"
    with pytest.raises(UsageError) as caught:
        read_baseline(path, NOW)
    remedy = "correct --tokenwatt-baseline, or store one with --tokenwatt-save-baseline=FILE"
    assert str(caught.value) == f"{path}: there is no such baseline file; {remedy}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON file"),
        ("[]", "holds a list where a mapping is wanted"),
        ('{"gates": []}', "the key schema is missing"),
        ('{"schema": "tokenwatt/99"}', "schema 'tokenwatt/99' is not 'tokenwatt/1'"),
    ],
)
def test_a_damaged_or_foreign_baseline_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "main.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_baseline(path, NOW)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_several_records_are_no_baseline_but_a_single_one_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run_record(path, [baseline_record(), replace(baseline_record(), key="tuned", role="tuned")])
    with pytest.raises(UsageError, match=r"2 configurations \(baseline, tuned\) where one is wanted"):
        read_baseline(path, NOW)
    write_run_record(path, [baseline_record()])
    assert read_baseline(path, NOW).record == baseline_record()


def test_an_instant_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    write_run_record(path, [replace(baseline_record(), provenance=Provenance(recorded="last week"))])
    with pytest.raises(UsageError, match=r"main\.json: provenance\.recorded: 'last week' is no ISO instant; store one"):
        read_baseline(path, NOW)


# --- age


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("2026-11-18T09:30:00+00:00", "recorded 12 days ago (2026-11-18)"),
        ("2026-11-29T12:00:00+00:00", "recorded 1 day ago (2026-11-29)"),
        ("2026-11-29T12:00:01+00:00", "recorded 23 hours ago (2026-11-29)"),
        ("2026-11-30T10:59:00+00:00", "recorded 1 hour ago (2026-11-30)"),
        ("2026-11-30T11:57:30+00:00", "recorded 2 minutes ago (2026-11-30)"),
        ("2026-11-30T11:59:30+00:00", "recorded just now (2026-11-30)"),
        ("2026-11-30T12:00:30+00:00", "recorded just now (2026-11-30)"),
        ("2026-12-01T00:30:00+13:00", "recorded 30 minutes ago (2026-12-01)"),
        ("2026-11-18", "recorded 12 days ago (2026-11-18)"),
        ("2026-12-24T00:00:00+00:00", "recorded later than this machine's clock says it is (2026-12-24)"),
        (None, "recorded at an unknown time"),
    ],
)
def test_age_is_told_in_the_largest_whole_unit(recorded: str | None, told: str) -> None:
    assert age_text(recorded, NOW) == told


@given(age=st.timedeltas(timedelta(0), timedelta(days=4000)), offset=st.integers(-14, 14))
def test_age_does_not_depend_on_the_time_zone(age: timedelta, offset: int) -> None:
    instant = NOW - age
    moved = instant.astimezone(timezone(timedelta(hours=offset)))
    told, here = age_text(moved.isoformat(), NOW), age_text(instant.isoformat(), NOW)
    assert told.partition(" (")[0] == here.partition(" (")[0]
    assert told.endswith(f"({moved:%Y-%m-%d})")
    if age >= timedelta(days=1):
        assert f" {age.days} day" in told
