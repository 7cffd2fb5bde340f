"""Stored files that somebody spoiled: one readable message or a verdict, and never a pass of what had failed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from failing_samples import FAILING, PASSING, Document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_mutations import ODD_NUMBERS, Place, Step, as_bytes, changed, changes, copies, places, removals, spoiled
from schema_samples import faults, stored

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.replay import ReplayLab, open_replay
from pytest_tokenwatt.store.atomic import dump_json

QUICK = settings(suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=500)
FORMS = {**{f"failing {name}": form for name, form in FAILING.items()}, **PASSING}
FILE = "stored.json"
ALL = "goodput accuracy kl perplexity length speed memory audit budget precision score"
Verdicts = Mapping[tuple[str, str], set[str]]
"""By the label of the configuration, which no mutation of ours gives to another one, and the gate without its suite."""


@cache
def document_of(name: str) -> Document:
    with tempfile.TemporaryDirectory() as folder:
        return FORMS[name](Path(folder))


def judged(folder: Path, content: bytes, *, report: bool = True) -> tuple[Verdicts, str]:
    """The verdicts of a file by a replay, or the one line that says why there are none.

    A ``report`` is written too; its figures take most of the time.
    """
    path = folder / FILE
    path.write_bytes(content)
    try:
        lab = open_replay([path], out=folder / "out")
        results = [lab.judge(gate) for gate in lab.gates]
        if report:
            check_report(lab)
    except UsageError as error:
        return {}, str(error)
    labels = {each.key: each.label for each in lab.spec.configurations}
    verdicts: dict[tuple[str, str], set[str]] = {}
    for each in results:
        verdicts.setdefault((labels[each.config], each.gate.split("[")[0]), set()).add(each.verdict.value)
    return verdicts, ""


def check_report(lab: ReplayLab) -> None:
    """It can be written and shown, and has the schema's keys: values out of range are those of the file."""
    finished = lab.finish()
    assert finished is not None
    assert finished.table(80, False)
    assert faults(stored(finished.report), ranges=False) == []
    assert dump_json(finished.report) == finished.report_path.read_text(encoding="utf-8")


def check(folder: Path, content: bytes, *, report: bool) -> Verdicts:
    """A verdict or one line that names the file."""
    verdicts, message = judged(folder, content, report=report)
    assert "\n" not in message
    assert not message or FILE in message
    return verdicts


@cache
def failing_gates(name: str) -> frozenset[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        verdicts, message = judged(Path(folder), as_bytes(document_of(name)), report=False)
    assert not message
    return frozenset(place for place, found in verdicts.items() if found == {"fail"})


def check_no_pass(folder: Path, name: str, document: Document, *, report: bool = False) -> None:
    """What failed before does not pass."""
    verdicts = check(folder, as_bytes(document), report=report)
    passed = {place for place, found in verdicts.items() if "pass" in found}
    assert not passed & failing_gates(name)


# --- what there is to break


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("published report", "accuracy"),
        ("published submission", "accuracy kl perplexity length speed memory audit budget precision score"),
        ("uneven submission", "speed score"),
        ("own report", ALL),
        ("own records", ALL),
        ("own windows", f"slo {ALL}"),
    ],
)
def test_the_samples_fail_where_they_should(name: str, gates: str) -> None:
    assert {gate for _, gate in failing_gates(f"failing {name}")} == set(gates.split())


# --- anything at all


def any_change(data: st.DataObject, name: str) -> bytes:
    document = document_of(name)
    if data.draw(st.integers(0, 4)) == 0:
        return data.draw(spoiled(as_bytes(document)))
    return as_bytes(changed(document, data.draw(st.lists(changes(document), min_size=1, max_size=3))))


def sometimes(data: st.DataObject, every: int) -> bool:
    return data.draw(st.integers(0, every - 1)) == every - 1


@QUICK
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_a_spoiled_file_gives_a_verdict_or_one_line(tmp_path: Path, name: str, data: st.DataObject) -> None:
    check(tmp_path, any_change(data, name), report=sometimes(data, 12))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_so_do_five_hundred_of_each(tmp_path: Path, name: str) -> None:
    @LONG
    @given(st.data())
    def all_of_them(data: st.DataObject) -> None:
        check(tmp_path, any_change(data, name), report=sometimes(data, 4))

    all_of_them()


# --- figures that are taken away


def removal(data: st.DataObject, name: str) -> Document:
    document = document_of(name)
    steps = st.one_of(removals(document), copies(document, (None, "nobody")))
    return changed(document, data.draw(st.lists(steps, min_size=1, max_size=3)))


@QUICK
@given(st.sampled_from([f"failing {name}" for name in FAILING]), st.data())
def test_what_is_taken_away_makes_nothing_pass(tmp_path: Path, name: str, data: st.DataObject) -> None:
    check_no_pass(tmp_path, name, removal(data, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"failing {name}" for name in FAILING])
def test_nor_do_five_hundred_of_each(tmp_path: Path, name: str) -> None:
    @LONG
    @given(st.data())
    def all_of_them(data: st.DataObject) -> None:
        check_no_pass(tmp_path, name, removal(data, name), report=sometimes(data, 4))

    all_of_them()


def kinds_of(document: Document) -> list[Place]:
    """One place of each kind: elements of lists count as one."""
    found: dict[Place, Place] = {}
    for place in places(document):
        found.setdefault(tuple("*" if isinstance(key, int) and key > 1 else key for key in place), place)
    return list(found.values())


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("published report", 1),
        ("published submission", 5),
        ("own report", 40),
        ("own records", 40),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in FAILING if name != "published report"),
    ],
)
def test_every_single_key_may_be_missing(tmp_path: Path, name: str, every: int) -> None:
    document = document_of(f"failing {name}")
    for place in kinds_of(document)[::every]:
        check_no_pass(tmp_path, f"failing {name}", changed(document, [Step("delete", place)]))


# --- figures that are others


ACCURACY = [("configs", 0, "accuracy"), ("configs", 1, "accuracy"), ("accuracy", "threshold_pts")]
DECIDING: list[Place] = [*ACCURACY, ("spec", "accuracy", "max_drop_pts"), ("configs", 0, "key"), ("configs", 1, "key")]
"""Where the published report says what its failing gate rests on."""


def rests_on(place: Place) -> bool:
    """Whether a place is one of those, lies within it or around it."""
    return any(place[: len(other)] == other[: len(place)] for other in DECIDING)


def other_figures(document: Document) -> st.SearchStrategy[Step]:
    free = st.sampled_from([place for place in places(document) if not rests_on(place)])
    worse = [
        Step("set", ("configs", 1, "accuracy", "score"), 80.0),
        Step("set", ("configs", 1, "accuracy", "delta_pts"), -16.0),
        Step("set", ("configs", 0, "accuracy", "score"), 99.0),
        Step("set", ("spec", "accuracy", "max_drop_pts"), 0.5),
        Step("set", ("accuracy", "threshold_pts"), 0.0),
        Step("set", ("configs", 1, "accuracy", "spread_pts"), 4.0),
    ]
    return st.one_of(
        st.builds(Step, st.just("set"), free, st.sampled_from(ODD_NUMBERS)),
        st.builds(Step, st.just("swap"), free, free),
        st.sampled_from(worse),
        removals(document),
    )


def figures_changed(data: st.DataObject) -> Document:
    document = document_of("failing published report")
    return changed(document, data.draw(st.lists(other_figures(document), min_size=1, max_size=3)))


@QUICK
@given(st.data())
def test_no_other_figure_makes_it_pass(tmp_path: Path, data: st.DataObject) -> None:
    check_no_pass(tmp_path, "failing published report", figures_changed(data))


@pytest.mark.slow
@settings(LONG)
@given(st.data())
def test_nor_do_five_hundred_others(tmp_path: Path, data: st.DataObject) -> None:
    check_no_pass(tmp_path, "failing published report", figures_changed(data))


# --- by hand


def spoil(name: str, *steps: Step) -> Document:
    return changed(document_of(name), steps)


@pytest.mark.parametrize(
    "steps",
    [
        (Step("copy", ("configs", 1)),),
        (Step("copy", ("configs", 0)),),
        (Step("set", ("configs", 0, "key"), "tuned"),),
        (Step("delete", ("configs", 0, "key")),),
        (Step("set", ("configs",), []),),
        (Step("delete", ("configs",)),),
        (Step("set", ("spec",), "h100.yaml"),),
        (Step("set", ("configs", 1, "accuracy", "score"), "88"),),
        (Step("set", ("configs", 1, "accuracy", "score"), float("nan")),),
        (Step("set", ("configs", 1, "accuracy", "score"), 880.0),),
        (Step("set", ("configs", 1, "goodput_tok_s"), -5056.9),),
    ],
    ids=lambda steps: f"{steps[0].kind}-{'.'.join(map(str, steps[0].place))}",
)
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    verdicts, message = judged(tmp_path, as_bytes(spoil("failing published report", *steps)))
    assert not verdicts
    assert FILE in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("published report", Step("set", ("configs", 1, "goodput_tok_s"), 1e-310)),
        (
            "failing own report",
            Step("set", ("configs", 1, "profiles", "long_context", "runs", 2, "output_tok_s"), 5e-324),
        ),
        ("published submission", Step("set", ("result", "drift"), -(2**62))),
        ("failing own records", Step("set", ("records", 0, "spec", "configs", 1, "key"), {})),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.value),
)
def test_the_edges_of_numbers_are_a_verdict_or_one_line(tmp_path: Path, name: str, step: Step) -> None:
    check(tmp_path, as_bytes(spoil(name, step)), report=True)


def test_a_candidate_without_its_score_is_not_decided(tmp_path: Path) -> None:
    gone = [Step("delete", ("configs", 1, "accuracy"))]
    verdicts, _ = judged(tmp_path, as_bytes(spoil("failing published report", *gone)))
    assert verdicts["vllm-fp8kv", "accuracy"] == {"inconclusive"}


def test_a_report_without_its_baseline_compares_nothing(tmp_path: Path) -> None:
    verdicts, _ = judged(tmp_path, as_bytes(spoil("failing published report", Step("delete", ("configs", 0)))))
    assert verdicts["vllm-fp8kv", "accuracy"] == {"fail"}
    assert "pass" not in verdicts["vllm-fp8kv", "goodput"]


# --- the same again


@pytest.mark.parametrize("name", ["published submission", "failing own records"])
def test_replaying_twice_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        judged(tmp_path / folder, as_bytes(document_of(name)))
    first, second = ((tmp_path / folder / "out" / "report.json").read_bytes() for folder in ("first", "second"))
    assert _steady(first, tmp_path) == _steady(second, tmp_path)


def _steady(content: bytes, folder: Path) -> bytes:
    return content.replace(f"{folder}/first".encode(), b"").replace(f"{folder}/second".encode(), b"")
