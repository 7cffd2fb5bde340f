"""Ways to spoil a JSON document: what a hand, a broken disk or another tool may do to a stored report."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]
Document = dict[str, Any]
NOT_FIGURES: tuple[Any, ...] = (None, "", "many", "12", True, False, [], {}, [None], {"": 0}, "\x00\ud800")
"""Of other types than a figure or a block is; the last is no text that UTF-8 can hold."""
BAD_NUMBERS = (math.nan, math.inf, -math.inf, 10**40)
"""No numbers that a report may hold."""
ODD_NUMBERS = (
    *(0, -1, 0.5, 1 + 2**-52, 1e9, 2**53 + 1, 2**62, 1e18, -1e18, 1e300, -1e300),
    *(1e-9, -1e-9, 1e-18, 1e-160, 1e-320, 5e-324),
)
"""Large and small enough for squares, exponentials and logarithms to leave their ranges."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change at a place: ``delete``, ``set`` to ``value``, ``swap`` with ``value`` or append a ``copy``.

    A copy is of the list's element at the place; with a ``value`` its key is called so.
    """

    kind: str
    place: Place
    value: Any = None


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place below the root, blocks before what they hold."""
    pairs: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, inner in pairs:
        yield (*place, key)
        yield from places(inner, (*place, key))


def at(document: Any, place: Place) -> Any:
    """What stands at a place. Raises ``LookupError`` or ``TypeError`` where nothing does."""
    for key in place:
        document = document[key]
    return document


def changed(document: Document, steps: Sequence[Step]) -> Document:
    """The document after all steps; those whose place an earlier one took away are left out."""
    result = copy.deepcopy(document)
    for step in steps:
        try:
            _apply(result, step)
        except (LookupError, TypeError):
            continue
    return result


def _apply(document: Document, step: Step) -> None:
    holder, key = at(document, step.place[:-1]), step.place[-1]
    found = holder[key]
    if step.kind == "delete":
        del holder[key]
    elif step.kind == "set":
        holder[key] = copy.deepcopy(step.value)
    elif step.kind == "swap":
        other, name = at(document, step.value[:-1]), step.value[-1]
        other[name], holder[key] = found, other[name]
    elif step.kind == "copy" and isinstance(holder, list):
        own = copy.deepcopy(found)
        holder.append(own if step.value is None else {**own, "key": step.value})


def as_bytes(document: Any) -> bytes:
    """As a careless tool would write it: NaN and infinity by name."""
    return json.dumps(document, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")


# --- strategies


def removals(document: Document, keep: Callable[[Place], bool] = lambda place: False) -> st.SearchStrategy[Step]:
    """Steps that take a figure away, or make it one that cannot be believed; ``keep`` are places to leave alone."""
    found = st.sampled_from([place for place in places(document) if not keep(place)])
    return st.one_of(
        st.builds(Step, st.just("delete"), found),
        st.builds(Step, st.just("set"), found, st.sampled_from((*NOT_FIGURES, *BAD_NUMBERS))),
    )


def copies(document: Document, names: Sequence[str | None]) -> st.SearchStrategy[Step]:
    """Configurations (and other elements of lists) that stand there twice, under the same name or another one."""
    listed = [place for place in places(document) if isinstance(place[-1], int)]
    return st.builds(Step, st.just("copy"), st.sampled_from(listed or [("",)]), st.sampled_from(names))


def changes(document: Document) -> st.SearchStrategy[Step]:
    """Any step: figures of other sizes, and values that changed their places too."""
    found = st.sampled_from(list(places(document)))
    return st.one_of(
        removals(document),
        copies(document, (None, "baseline", "tuned", "other", "nobody")),
        st.builds(Step, st.just("set"), found, st.sampled_from(ODD_NUMBERS)),
        st.builds(Step, st.just("set"), found, st.sampled_from(("baseline", "tuned", "other", "again", "none"))),
        st.builds(Step, st.just("swap"), found, found),
    )


def spoiled(content: bytes) -> st.SearchStrategy[bytes]:
    """The file cut short, or with a byte that is another one."""
    cut = st.integers(0, len(content) - 1).map(lambda end: content[:end])
    spot = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    return cut | spot.map(lambda pair: content[: pair[0]] + bytes([pair[1]]) + content[pair[0] + 1 :])
