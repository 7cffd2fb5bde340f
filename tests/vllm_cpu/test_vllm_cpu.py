"""The real engine: `make test-vllm` installs it, builds its tiny model, and runs this."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.quality.drift.fitting import narrowed
from pytest_tokenwatt.store.topk_npz import read_topk

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "vllm-cpu.yaml"

pytestmark = pytest.mark.vllm


@dataclass(frozen=True)
class Run:
    """A finished run: its directory, and the processes of an engine that were there behind it and not before."""

    out: Path
    left: tuple[int, ...]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run of the spec through the plugin, in its own process, as a user starts it."""
    before = set(descendants(1))
    out = tmp_path_factory.mktemp("vllm") / "run"
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--tokenwatt-spec={SPEC}",
        f"--tokenwatt-out={out}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    new = [pid for pid in descendants(1) if pid not in before]
    return Run(out, tuple(pid for pid in new if "vllm" in _text(Path(f"/proc/{pid}/cmdline")).lower()))


@pytest.fixture(scope="module")
def report(run: Run) -> dict[str, Any]:
    """The run's lab report."""
    content: dict[str, Any] = json.loads((run.out / "report.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("key", ["baseline", "tuned"])
def test_each_configuration_has_goodput_and_an_slo_verdict(report: dict[str, Any], key: str) -> None:
    (config,) = [each for each in report["configs"] if each["key"] == key]
    (slo,) = [each for each in report["gates"] if each["id"] == f"{key}::slo"]
    assert config["goodput_tok_s"] > 0
    assert config["ttft_p99_ms"] > 0
    assert config["slo_pass_count"] == config["repeats"]
    assert slo["verdict"] == "pass"


def test_the_configurations_differ_in_their_cache(report: dict[str, Any]) -> None:
    engines = report["provenance"]["engines"]
    assert engines["baseline"]["fingerprint"] != engines["tuned"]["fingerprint"]
    tokens = {key: int(engine["cache_config"]["kv_cache_size_tokens"]) for key, engine in engines.items()}
    assert tokens["tuned"] == pytest.approx(2 * tokens["baseline"], rel=0.01)


def test_the_goodput_gate_compared_them(report: dict[str, Any]) -> None:
    (goodput,) = [each for each in report["gates"] if each["id"] == "tuned::goodput"]
    assert goodput["verdict"] in {"pass", "fail", "inconclusive"}
    assert goodput["value"] > 0
    assert goodput["error"] is not None


def test_a_suite_was_asked_of_both_on_the_same_items(run: Run, report: dict[str, Any]) -> None:
    stored = [json.loads((run.out / f"record-{key}.json").read_text(encoding="utf-8")) for key in ("baseline", "tuned")]
    baseline, tuned = (record["suites"]["arithmetic"] for record in stored)
    assert [item["id"] for item in baseline["items"]] == [item["id"] for item in tuned["items"]]
    assert len(tuned["items"]) == len(baseline["control"]) == 50
    assert baseline["sha256"] == tuned["sha256"]
    assert tuned["counts"]["failed"] == baseline["counts"]["failed"] == 0
    assert tuned["invalid"] == baseline["invalid"] == []
    (gate,) = [each for each in report["gates"] if each["id"] == "tuned::accuracy[arithmetic]"]
    assert gate["value"] == pytest.approx(tuned["score"] - baseline["score"])


def test_power_and_bandwidth_say_why_they_are_not_there(report: dict[str, Any]) -> None:
    entry = report["configs"][0]
    assert (entry["tokens_per_joule"], entry["mbu_pct"]) == (None, None)
    assert entry["missing"]["tokens_per_joule"]
    assert "bandwidth" in entry["missing"]["mbu_pct"]


def test_the_report_is_of_a_real_engine(report: dict[str, Any]) -> None:
    assert all(engine["simulated"] is False for engine in report["provenance"]["engines"].values())
    assert report["software"]["engine_version"] == "0.32.0"
    assert not any("imulated" in line for line in report["not_covered"])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the lab spec: profiles, audit, score, and drift by the whole vocabulary, which is exact."""
    out = tmp_path_factory.mktemp("lab") / "run"
    spec = ROOT / "tests" / "vllm_cpu" / "lab.yaml"
    command = [sys.executable, "-m", "pytest", f"--tokenwatt-spec={spec}", f"--tokenwatt-out={out}"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    return out


def record_of(run_dir: Path, key: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run_dir / f"record-{key}.json").read_text(encoding="utf-8"))
    return record


def submission_of(run_dir: Path) -> dict[str, Any]:
    report = json.loads((run_dir / "report.json").read_text(encoding="utf-8"))
    (entry,) = [each for each in report["configs"] if each["key"] == "tuned"]
    found: dict[str, Any] = entry["submission"]
    return found


def test_bytes_per_token_halve_at_start_up_and_in_use(lab: Path) -> None:
    pools = [record_of(lab, key)["startup"]["kv_bytes_per_token"] for key in ("baseline", "tuned")]
    assert pools[0] == 2 * pools[1]
    result = submission_of(lab)["result"]
    for name in ("serve", "interactive"):
        used = [result[peaks][name]["kv_bytes_per_token"] for peaks in ("anchor_peak_memory", "peak_memory")]
        # By the highest of some readings, of which a busy machine gets fewer.
        assert used[0] == pytest.approx(2 * used[1], rel=0.2)
        assert used == pytest.approx(pools, rel=0.2)


def test_weights_are_the_checkpoints_and_what_a_cpu_does_not_tell_is_null_with_a_reason(lab: Path) -> None:
    memory = record_of(lab, "tuned")["profiles"]["serve"]["memory"]
    size_gib = (ROOT / "build" / "tiny-qwen3" / "model.safetensors").stat().st_size / 2**30
    assert memory["weights_source"] == "checkpoint"
    assert memory["weights_gib"] == pytest.approx(size_gib, rel=0.05)
    assert (memory["other_gib"], memory["peak_gib"]) == (None, None)
    assert "vLLM on a CPU logs no line" in memory["missing"]["other_gib"]


def test_precision_is_read_and_equals_what_is_declared(lab: Path) -> None:
    labels = {key: record_of(lab, key)["precision"] for key in ("baseline", "tuned")}
    assert {key: each["label"] for key, each in labels.items()} == {"baseline": "W16A16KV16", "tuned": "W16A16KV8"}
    assert set(labels["tuned"]["sources"]) == {"weights", "activations", "kv", "weights_average", "stored_gib"}


def test_timed_outputs_are_the_models_own(lab: Path) -> None:
    for name in ("serve", "interactive"):
        audit = record_of(lab, "tuned")["audits"][name]
        assert audit["status"] == "audited"
        assert abs(audit["gap_median"]) < 0.1
        assert audit["empty"] == 0
        assert audit["bf16_top1"] > 0.95


def test_the_submission_is_whole(lab: Path) -> None:
    submission = submission_of(lab)
    result = submission["result"]
    assert [stage["name"] for stage in submission["stages"]] == ["build", "contract", "quality", "efficiency", "score"]
    assert set(result["efficiency"]) == set(result["anchor_efficiency"]) == {"serve", "interactive"}
    assert all(rate > 0 for rate in result["efficiency"].values())
    assert result["kl"]["kl"] > 10 * result["kl"]["identity"]["kl"] >= 0
    assert result["engine"]["startup"]["vllm_version"] == "0.32.0"
    # Without activations there is no peak: no gain in memory, no score, and the reasons say so.
    assert (result["memory"], result["score"], result["qualified"]) == (None, None, False)
    assert result["missing"]["memory"]
    assert result["reason"]


def drift_of(run_dir: Path, key: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run_dir / f"record-{key}.json").read_text(encoding="utf-8"))["drift"]
    return record


def test_an_fp8_cache_diverges_and_the_baseline_does_not_from_itself(lab: Path) -> None:
    against, control = drift_of(lab, "tuned")["against"], drift_of(lab, "baseline")["control"]
    assert against["invalid"] == control["invalid"] == []
    assert against["kl"] > 5 * against["kl_se"] > 0
    assert 10 * abs(control["kl"]) <= against["kl"]
    assert against["tail_mass"] == pytest.approx(0.0, abs=1e-3)


def test_the_top_of_the_vocabulary_estimates_the_exact_divergence(lab: Path) -> None:
    baseline, tuned = read_topk(lab / "drift-baseline.npz"), read_topk(lab / "drift-tuned.npz")
    exact = divergence(baseline.tops, tuned.tops, drawn=tuned.sequences)
    tops = [[narrowed(top, 20) for top in stored.tops] for stored in (baseline, tuned)]
    estimated = divergence(*tops, drawn=tuned.sequences)
    assert None not in (exact.kl, exact.kl_se, estimated.kl_lower, estimated.kl_sampled, estimated.kl_sampled_se)
    assert exact.kl == pytest.approx(drift_of(lab, "tuned")["against"]["kl"], rel=1e-3)
    assert (estimated.kl_lower or 0.0) <= (exact.kl or 0.0)
    joint = ((exact.kl_se or 0.0) ** 2 + (estimated.kl_sampled_se or 0.0) ** 2) ** 0.5
    assert abs((estimated.kl_sampled or 0.0) - (exact.kl or 0.0)) <= 3 * joint
    # Of a random model the likeliest twenty hold an eighth of the mass: what is extrapolated from them is doubted
    # rather than wrong.
    joint = ((exact.kl_se or 0.0) ** 2 + (estimated.kl_se or 0.0) ** 2) ** 0.5
    assert estimated.doubts or abs((estimated.kl or 0.0) - (exact.kl or 0.0)) <= 3 * joint


def test_decoding_says_what_the_prefill_says(lab: Path) -> None:
    for key in ("baseline", "tuned"):
        record = drift_of(lab, key)
        assert record["decode_tokens"] > 500
        assert record["decode_gap"] < 0.05


def test_no_process_is_left(run: Run) -> None:
    assert run.left == ()


def descendants(pid: int) -> dict[int, str]:
    """Process id and start time of everything below a process; titles and environments may be rewritten, these not."""
    stats = {entry.name: _stat(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found: dict[int, str] = {}
    wanted = {str(pid)}
    while wanted:
        below = {name: stat for name, stat in stats.items() if stat and stat[0] in wanted and int(name) not in found}
        found |= {int(name): stat[1] for name, stat in below.items() if stat}
        wanted = set(below)
    return found


def _stat(entry: Path) -> tuple[str, str] | None:
    """Parent and start time."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[1], fields[19]) if fields[0] != "Z" else None


def test_a_killed_run_leaves_no_engine(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--tokenwatt-spec={SPEC}",
        f"--tokenwatt-out={out}",
        "-p",
        "no:cacheprovider",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as run:
        try:
            _wait_for(lambda: "engine_ready" in _text(out / "journal.jsonl"), 300)
            tree = descendants(run.pid)
        finally:
            run.kill()
    assert len(tree) >= 3  # the guard, the server and its engine core
    _wait_for(lambda: not _alive(tree), 60)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _alive(tree: dict[int, str]) -> list[int]:
    now = {pid: _stat(Path("/proc") / str(pid)) for pid in tree}
    return [pid for pid, stat in now.items() if stat is not None and stat[1] == tree[pid]]


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
