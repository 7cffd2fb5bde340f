"""``report`` and ``compare``: verdict and exit code of stored runs, without pytest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_servers import call

REFERENCE = Path(__file__).parents[1] / "report" / "reference"
KV_CACHE = REFERENCE / "lab-kv-cache.json"
KERNELS = REFERENCE / "lab-moe-kernels.json"
SUBMISSION = REFERENCE / "submission-fp8-chunked-prefill.json"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def cut(report: Path, key: str, name: str, **changed: Any) -> str:
    """A report of one configuration of a reference report."""
    told = json.loads(report.read_text(encoding="utf-8"))
    (config,) = (each for each in told["configs"] if each["key"] == key)
    Path(name).write_text(json.dumps({**told, "configs": [{**config, **changed}]}), encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("path", "code", "failing"),
    [(KV_CACHE, 1, {"tuned::accuracy[gsm8k-5shot]"}), (KERNELS, 0, set()), (SUBMISSION, 0, set())],
    ids=lambda value: value.stem if isinstance(value, Path) else None,
)
def test_the_references_come_out_as_they_are_published(
    path: Path, code: int, failing: set[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "report", str(path), "--out", "out")
    assert (done.code, done.err) == (code, "")
    report = json.loads((place / "out" / "report.json").read_text(encoding="utf-8"))
    assert {gate["id"] for gate in report["gates"] if gate["verdict"] == "fail"} == failing
    assert f"report: {place / 'out'}/report." in done.out
    assert (place / "out" / "report.md").is_file()
    if path == KERNELS:
        assert "no measurable difference" in report["summary"]


def test_a_title_is_taken_and_a_spec_sets_other_limits(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(KV_CACHE.read_text(encoding="utf-8"))
    spec = {**told["spec"], "gates": {"accuracy": {"mode": "info"}, "goodput": {"min": 1.5}}}
    (place / "own.yaml").write_text(json.dumps(spec), encoding="utf-8")
    done = call(capsys, "report", str(KV_CACHE), "--spec", "own.yaml", "--title", "Ours", "--out", "out")
    assert done.code == 1
    report = json.loads((place / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["title"] == "Ours"
    assert [gate["id"] for gate in report["gates"] if gate["verdict"] == "fail"] == ["tuned::goodput"]


def test_two_records_are_merged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KV_CACHE, "baseline", "a.json"), cut(KV_CACHE, "tuned", "b.json")
    done = call(capsys, "report", a, b, "--out", "out")
    assert done.code == 1
    report = json.loads((place / "out" / "report.json").read_text(encoding="utf-8"))
    assert [config["key"] for config in report["configs"]] == ["baseline", "tuned"]


def test_compare_judges_the_second_against_the_first(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KV_CACHE, "baseline", "a.json"), cut(KV_CACHE, "tuned", "b.json")
    worse = call(capsys, "compare", a, b)
    assert worse.code == 1
    assert worse.out.splitlines()[-1] == "compare: fail: tuned::accuracy[gsm8k-5shot]"
    assert sorted(path.name for path in place.iterdir()) == ["a.json", "b.json"]


def test_compare_takes_the_order_and_not_the_recorded_roles(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KV_CACHE, "baseline", "a.json"), cut(KV_CACHE, "tuned", "b.json")
    turned = call(capsys, "compare", b, a)
    assert turned.code == 1
    assert turned.out.splitlines()[-1] == "compare: fail: tuned::goodput"


def test_compare_says_what_it_compares(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KV_CACHE, "baseline", "a.json"), cut(KV_CACHE, "tuned", "b.json")
    told = call(capsys, "compare", a, b).out.splitlines()
    age = r"recorded .* \(2026-10-06\)"
    assert re.fullmatch(rf"baseline   a\.json: vllm-default, vLLM 0\.31\.0, {age}", told[0])
    assert re.fullmatch(rf"candidate  b\.json: vllm-fp8kv, vLLM 0\.31\.0, {age}", told[1])
    turned = call(capsys, "compare", b, a).out
    assert "b.json was recorded as tuned, a.json as baseline; `compare a.json b.json` takes them so" in turned
    assert "takes them so" not in "\n".join(told)


def test_a_label_cannot_write_over_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    a = cut(KV_CACHE, "baseline", "a.json", label="\x1b[31mred\nbaseline  other.json " + "x" * 400)
    first, second = call(capsys, "compare", a, cut(KV_CACHE, "tuned", "b.json")).out.splitlines()[:2]
    assert "\x1b" not in first
    assert len(first) < 140
    assert second.startswith("candidate  b.json")


def test_compare_leaves_nothing_behind(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = cut(KERNELS, "baseline", "a.json"), cut(KERNELS, "tuned", "b.json")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place / "summary.md"))
    call(capsys, "compare", a, b)
    assert sorted(path.name for path in place.iterdir()) == ["a.json", "b.json", "summary.md"]
    assert "Full report" not in (place / "summary.md").read_text(encoding="utf-8")


def test_compare_passes_what_is_as_good(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KERNELS, "baseline", "a.json"), cut(KERNELS, "tuned", "b.json")
    equal = call(capsys, "compare", a, b)
    assert (equal.code, equal.out.splitlines()[-1]) == (0, "compare: pass")


def test_another_machine_is_compared_when_that_is_allowed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KERNELS, "baseline", "a.json"), cut(KERNELS, "tuned", "b.json")
    told = json.loads(Path(b).read_text(encoding="utf-8"))
    told["hardware"]["accelerator"] = "NVIDIA H200"
    Path(b).write_text(json.dumps(told), encoding="utf-8")
    refused = call(capsys, "compare", a, b)
    assert refused.code == 11
    assert "hardware" in refused.out
    assert "--tokenwatt-allow-diff=hardware" in refused.out
    for option in ("--tokenwatt-allow-diff=hardware", "--allow-diff=hardware"):
        assert call(capsys, "compare", a, b, option).code == 0


def test_nothing_that_compares_is_no_pass(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cut(KERNELS, "baseline", "a.json"), cut(KERNELS, "tuned", "b.json")
    told = json.loads(KERNELS.read_text(encoding="utf-8"))
    off = {key: {"mode": "info"} for key in ("goodput", "accuracy", "energy")}
    (place / "own.yaml").write_text(json.dumps({**told["spec"], "gates": off}), encoding="utf-8")
    done = call(capsys, "compare", a, b, "--spec", "own.yaml")
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("compare: fail: no gate compares the two")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "x.json"),
        ("", "x.json"),
        ("{", "x.json"),
        ("[1]", "x.json"),
        ("{}", "x.json"),
        ('{"configs": 3, "spec": []}', "x.json"),
        ("\x00\xff", "x.json"),
    ],
)
@pytest.mark.parametrize("words", [("report", "x.json"), ("compare", "x.json", "x.json")])
def test_a_file_that_cannot_be_read_is_one_line(
    words: tuple[str, ...], content: str | None, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (place / "x.json").write_text(content, encoding="latin-1")
    done = call(capsys, *words)
    assert (done.code, done.out) == (4, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (place / "tokenwatt-runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report",), "RUN"),
        (("compare", "a"), "B"),
        (("compare", "a", "b", "c"), "unrecognized arguments: c"),
        (("report", str(KERNELS), "--spec", "absent.yaml"), "absent.yaml"),
        (("report", str(KERNELS), "--baseline", "absent.json"), "absent.json"),
        (
            ("report", str(KERNELS), "--allow-diff", "hardwear"),
            "--allow-diff: records cannot be allowed to differ in 'hardwear'; did you mean",
        ),
        (("report", str(KERNELS), "--out", "occupied/out"), "--out: {place}/occupied is a file, not a directory; "),
        (
            ("report", "own.json", "--out", "own.json"),
            "--out: {place}/own.json is what is read here: it would be written over; name",
        ),
        (("report", str(KERNELS), "--out", ""), "--out"),
        (("report", ""), "RUN: is empty; name a path"),
        (("compare", "", str(KERNELS)), "A: is empty; name a path"),
        (("compare", str(KERNELS), str(KERNELS)), "lab-moe-kernels.json"),
        (("report", str(KERNELS), str(KERNELS)), "lab-moe-kernels.json"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...], said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "occupied").write_text("", encoding="utf-8")
    (place / "own.json").write_bytes(KERNELS.read_bytes())
    done = call(capsys, *words)
    assert (done.code, done.out) == (4, "")
    assert said.format(place=place) in done.err
    assert done.err.count("\n") == 1
