"""Whatever the file holds, the answer is a spec or a list of problems, one line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_texts import load

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.spec.document import Document
from pytest_tokenwatt.spec.model import Spec

COMPLETE = (Path(__file__).parent / "data" / "complete.yaml").read_text(encoding="utf-8")
SHORT = (
    "engine: {endpoint: 'http://h/v1'}\nslo: {ttft_p99_ms: 1}\nconfigs: [{key: a, role: baseline}, {key: b, like: a}]\n"
)

KEYS = sorted(
    {
        *Document.model_fields,
        *(name for field in ("key", "role", "like", "args", "env", "x-a", "zzz") for name in [field]),
    }
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["${A}", "${A:-1}", "a", "info"])
)
INNER = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
QUICKLY = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def answer(text: str) -> Spec | None:
    """The spec, or nothing once the problems are seen to be lines for a user."""
    problems: SpecError
    try:
        return load(text, {"A": "3"})
    except SpecError as error:
        problems = error
    lines = [str(problem) for problem in problems.problems]
    assert lines
    assert str(problems).splitlines() == lines
    assert all(line.startswith("spec.yaml") and "pydantic" not in line for line in lines)
    return None


def paths(data: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(data, dict):
        return [at, *(path for key, part in data.items() for path in paths(part, (*at, key)))]
    if isinstance(data, list):
        return [at, *(path for place, part in enumerate(data) for path in paths(part, (*at, place)))]
    return [at]


DATA = yaml.safe_load(COMPLETE)
PATHS = [path for path in paths(DATA) if path]


def replaced(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    copy: Any = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@QUICKLY
@given(st.text(max_size=60) | st.text(alphabet="a:{}[]-&*!|>'\"#%@`\n\t ,?$<0.", max_size=40))
def test_any_text(text: str) -> None:
    answer(text)


@QUICKLY
@given(st.dictionaries(st.sampled_from(KEYS), INNER, max_size=5))
def test_any_structure(data: dict[str, Any]) -> None:
    answer(json.dumps(data))


@QUICKLY
@given(st.sampled_from(PATHS), INNER)
def test_the_complete_form_with_one_value_replaced(path: tuple[str | int, ...], value: Any) -> None:
    answer(json.dumps(replaced(DATA, path, value), ensure_ascii=False))


@QUICKLY
@given(st.data())
def test_a_text_with_characters_cut_out_or_put_in(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([COMPLETE, SHORT]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    answer(text[:start] + data.draw(st.text(alphabet=" :{}[]-&*'\"\n\t,a0", max_size=3)) + text[end:])
