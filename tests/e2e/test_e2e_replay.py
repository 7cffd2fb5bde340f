"""Stored runs judged again: references, live runs, merges, and baselines between runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e_specs import quick_spec

pytestmark = pytest.mark.slow

REFERENCE = Path(__file__).resolve().parents[1] / "report" / "reference"
PAIR: list[dict[str, Any]] = [
    {"key": "baseline", "role": "baseline"},
    {"key": "tuned", "role": "tuned", "engine": {"args": ["--kv-cache-dtype", "fp8"]}},
]


def run(tmp_path: Path, *arguments: str, status: int = 0) -> str:
    """A pytest of its own in ``tmp_path``; what it printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    print(done.stdout[-6000:], done.stderr[-3000:])
    assert done.returncode == status
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


def report_at(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((path / "report.json").read_text(encoding="utf-8"))
    return report


def verdicts(path: Path) -> dict[str, str]:
    return {gate["id"]: gate["verdict"] for gate in report_at(path)["gates"]}


def command(tmp_path: Path, *arguments: str, status: int = 0) -> str:
    """The companion command."""
    words = [sys.executable, "-m", "pytest_tokenwatt", *arguments]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout[-6000:], done.stderr[-3000:])
    assert done.returncode == status
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_published_kv_cache_report_fails_exactly_its_accuracy(tmp_path: Path) -> None:
    run(tmp_path, f"--tokenwatt-replay={REFERENCE / 'lab-kv-cache.json'}", "--tokenwatt-out=out", status=1)
    found = verdicts(tmp_path / "out")
    assert [gate for gate, verdict in found.items() if verdict == "fail"] == ["tuned::accuracy[gsm8k-5shot]"]
    assert found["tuned::slo"] == found["tuned::goodput"] == "pass"
    assert set(found.values()) == {"pass", "fail", "-"}
    assert report_at(tmp_path / "out")["status"] == "draft"
    command(tmp_path, "report", str(REFERENCE / "lab-kv-cache.json"), status=1)


def test_the_published_kernel_report_shows_no_difference(tmp_path: Path) -> None:
    told = run(tmp_path, f"--tokenwatt-replay={REFERENCE / 'lab-moe-kernels.json'}", "--tokenwatt-out=out")
    assert "no measurable difference" in " ".join(told.split())
    assert set(verdicts(tmp_path / "out").values()) <= {"pass", "-"}
    assert report_at(tmp_path / "out")["status"] == "published"
    command(tmp_path, "report", str(REFERENCE / "lab-moe-kernels.json"))


def test_the_published_submission_qualifies(tmp_path: Path) -> None:
    path = REFERENCE / "submission-fp8-chunked-prefill.json"
    run(tmp_path, f"--tokenwatt-replay={path}", "--tokenwatt-out=out")
    report = report_at(tmp_path / "out")
    (entry,) = [each for each in report["configs"] if each["role"] != "baseline"]
    result = entry["submission"]["result"]
    assert (result["qualified"], result["quality"]["tier"]) == (True, "A")
    assert result["efficiency_gain"] == pytest.approx(1.5388, abs=1e-4)
    assert result["score"] == pytest.approx(1.4563, abs=3e-4)
    assert {gate["verdict"] for gate in report["gates"]} == {"pass"}
    command(tmp_path, "report", str(path))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live run of two configurations, with everything that is quick to measure."""
    root = tmp_path_factory.mktemp("live")
    spec = quick_spec(
        configs=PAIR,
        accuracy={"name": "sums", "suite": "sums.jsonl", "limit": 40, "max_tokens": 16, "max_drop_pts": 20.0},
        drift={"sequences": 8, "tokens": 8, "max_nats_per_token": 0.1},
        gates={"goodput": {"min": 0.5}, "length": {"max_shift": 1.0}},
    )
    (root / "lab.yaml").write_text(spec, encoding="utf-8")
    command(root, "suite", "arithmetic", "sums.jsonl", "--count", "40")
    run(root, "lab.yaml", "--tokenwatt-out=first", "--tokenwatt-save-baseline=base/bf16.json")
    return root


def test_a_live_run_replayed_gives_the_same_report(live: Path, tmp_path: Path) -> None:
    run(tmp_path, f"--tokenwatt-replay={live / 'first'}", "--tokenwatt-out=again")
    first, again = report_at(live / "first"), report_at(tmp_path / "again")
    assert again.pop("replayed") == ["first"]
    assert first.pop("replayed") is None
    assert json.dumps(first) == json.dumps(again)


def test_fixtures_read_replayed_values_and_live_tests_are_skipped(live: Path, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "def test_goodput(goodput, tokenwatt):\n"
        "    tokenwatt.gate('fast', goodput.tok_s, '>', 1.0)\n"
        "def test_kl(kl_drift): assert kl_drift.nats_per_token < 0.1\n"
        "def test_live(engine): raise RuntimeError('no engine should be here')\n",
        encoding="utf-8",
    )
    told = run(tmp_path, f"--tokenwatt-replay={live / 'first'}", "test_own.py", "-rs")
    assert "2 skipped" in told
    assert "a replay starts no engine" in told


def test_limits_of_a_given_spec_win_over_stored_ones(live: Path, tmp_path: Path) -> None:
    text = (live / "lab.yaml").read_text(encoding="utf-8").replace("min: 0.5", "min: 50.0")
    (tmp_path / "strict.yaml").write_text(text, encoding="utf-8")
    told = run(tmp_path, "strict.yaml", f"--tokenwatt-replay={live / 'first'}", "--tokenwatt-out=out", status=1)
    assert verdicts(tmp_path / "out")["tuned::goodput"] == "fail"
    assert "strict.yaml:" in told


def test_records_of_single_runs_merge_by_option_and_by_command(live: Path, tmp_path: Path) -> None:
    records = [str(live / "first" / f"record-{key}.json") for key in ("baseline", "tuned")]
    run(tmp_path, *(f"--tokenwatt-replay={path}" for path in records), "--tokenwatt-out=merged")
    assert verdicts(tmp_path / "merged") == verdicts(live / "first")
    command(tmp_path, "report", *records, "--out", "by-command")
    assert verdicts(tmp_path / "by-command") == verdicts(live / "first")
    told = command(tmp_path, "compare", *records)
    assert "goodput" in told


def test_a_stored_baseline_saves_measuring_it_again(live: Path, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text((live / "lab.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "sums.jsonl").write_bytes((live / "sums.jsonl").read_bytes())
    stored = live / "base" / "bf16.json"
    told = run(
        tmp_path, "lab.yaml", "--tokenwatt-config=tuned", f"--tokenwatt-baseline={stored}", "--tokenwatt-out=next"
    )
    assert "recorded" in told
    found = verdicts(tmp_path / "next")
    assert found["tuned::goodput"] == found["tuned::kl"] == found["tuned::accuracy[sums]"] == "pass"
    assert not (tmp_path / "next" / "record-baseline.json").exists()


def test_a_baseline_file_that_is_not_there_is_a_usage_error(live: Path, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text((live / "lab.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    told = run(tmp_path, "lab.yaml", "--tokenwatt-baseline=gone.json", status=4)
    assert "gone.json" in told


def test_a_baseline_is_stored_after_a_whole_run_only(live: Path, tmp_path: Path) -> None:
    stored = json.loads((live / "base" / "bf16.json").read_text(encoding="utf-8"))
    assert (stored["role"], stored["provenance"]["tool"].split()[0]) == ("baseline", "pytest-tokenwatt")
    told = run(
        tmp_path, f"--tokenwatt-replay={live / 'first'}", "--tokenwatt-save-baseline=no.json", "-k", "tuned and slo"
    )
    assert "is not stored as baseline" in told
    assert not (tmp_path / "no.json").exists()
    run(tmp_path, f"--tokenwatt-replay={live / 'first'}", "--tokenwatt-save-baseline=tuned=next.json")
    promoted = json.loads((tmp_path / "next.json").read_text(encoding="utf-8"))
    assert (promoted["key"], promoted["role"]) == ("tuned", "baseline")


def test_a_replay_that_decides_nothing_fails(live: Path, tmp_path: Path) -> None:
    record = json.loads((live / "first" / "record-baseline.json").read_text(encoding="utf-8"))
    record |= {"scenarios": {}, "suites": {}, "drift": None, "contract": None}
    (tmp_path / "bare.json").write_text(json.dumps(record), encoding="utf-8")
    run(tmp_path, "--tokenwatt-replay=bare.json", status=1)
