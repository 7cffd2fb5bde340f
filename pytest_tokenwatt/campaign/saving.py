"""``--tokenwatt-save-baseline``: what is asked for, whether this session's record may be a baseline, and storing it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from pytest_tokenwatt.campaign.baselines import capture_files, read_capture
from pytest_tokenwatt.campaign.promotion import promoted
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GateResult, Reason, Verdict
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.baselines import write_baseline
from pytest_tokenwatt.store.rundir import file_obstacle

OPTION = "--tokenwatt-save-baseline"
_KEYED = re.compile(r"([^:/\\=]+)=(.*)", re.DOTALL)
_NAMED = 3
"""Gates that a refusal names; of more it tells the number."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """One ``[KEY=]FILE`` of the option: the configuration ``key`` into ``path`` (absolute)."""

    key: str
    path: Path


@dataclass(frozen=True, slots=True)
class Course:
    """How a session went, beside its verdicts.

    ``gates`` are the ids (``config::gate``) of all gates that it has items for, selected or not. ``narrowed`` are the
    options that select among items, as typed (``-k fp8``, ``--tokenwatt-config=tuned``), ``deselected`` is the number
    of items that were left out, ``failed_tests`` that of failed tests that are no gates. ``interrupted`` says what
    ended the session early. ``quick``: with the short windows of --tokenwatt-quick.
    """

    gates: tuple[str, ...]
    narrowed: tuple[str, ...] = ()
    deselected: int = 0
    failed_tests: int = 0
    interrupted: str | None = None
    quick: bool = False


# --- what is asked for


def save_requests(given: Sequence[str], base: Path, spec: Spec) -> tuple[SaveRequest, ...]:
    """Read the option's values; files are relative to ``base``.

    Raises ``UsageError`` for an unknown configuration, for none where the spec has several and no baseline, for a
    file that is no ``.json`` or cannot be written, and for one that is named twice.
    """
    requests = tuple(_request(each, base, spec) for each in given)
    paths = [request.path for request in requests]
    for text, path in zip(given, paths, strict=True):
        if paths.count(path) > 1:
            raise UsageError("two records would go into one file", where=_where(text), remedy="name another file")
    return requests


def shares(given: Sequence[str], specs: Sequence[Spec]) -> list[tuple[str, ...]]:
    """Which of the option's values each of several specs is to read: that of the only one with the configuration.

    Raises ``UsageError`` for a value that fits several specs, whose records would write over each other, or none.
    """
    if len(specs) == 1:
        return [tuple(given)]
    holders = [_holder(each, specs) for each in given]
    return [tuple(text for text, spec in zip(given, holders, strict=True) if spec is own) for own in specs]


def _holder(given: str, specs: Sequence[Spec]) -> Spec:
    keyed = _KEYED.fullmatch(given)
    every = {configuration.key: spec for spec in specs for configuration in spec.configurations}
    fitting = [spec for spec in specs if keyed is None or any(each.key == keyed[1] for each in spec.configurations)]
    if not fitting and keyed is not None:
        raise _unknown(keyed[1], given, list(every))
    if len(fitting) > 1:
        what = f"it fits {len(fitting)} specs ({', '.join(spec.path.name for spec in fitting)})"
        remedy = f"write {OPTION}=KEY=FILE with a key that one of them has, or run the specs one by one"
        raise UsageError(what, where=_where(given), remedy=remedy)
    return fitting[0]


def _request(given: str, base: Path, spec: Spec) -> SaveRequest:
    keyed = _KEYED.fullmatch(given)
    key = _known(keyed[1], given, spec) if keyed else _default(given, spec)
    file = keyed[2] if keyed else given
    path = base / os.path.expanduser(file)  # noqa: PTH111 - Path.expanduser raises without a home
    if path.suffix.lower() != ".json":
        raise UsageError("a baseline is stored as JSON", where=_where(given), remedy="name a file that ends in .json")
    obstacle = file_obstacle(path)
    if obstacle is not None:
        raise UsageError(obstacle, where=_where(given), remedy="choose a writable place")
    return SaveRequest(key, path)


def _known(key: str, given: str, spec: Spec) -> str:
    keys = [configuration.key for configuration in spec.configurations]
    if key in keys:
        return key
    raise _unknown(key, given, keys)


def _unknown(key: str, given: str, keys: Sequence[str]) -> UsageError:
    near = get_close_matches(key, keys, 1)
    remedy = f"did you mean {near[0]}?" if near else f"configurations: {', '.join(keys)}"
    remedy = f"{remedy} (a file of that name is ./{given})"
    return UsageError(f"there is no configuration {key}", where=_where(given), remedy=remedy)


def _default(given: str, spec: Spec) -> str:
    if spec.baseline is not None:
        return spec.baseline.key
    if len(spec.configurations) == 1:
        return spec.configurations[0].key
    keys = ", ".join(configuration.key for configuration in spec.configurations)
    remedy = f"write {OPTION}=KEY={given} with one of {keys}"
    raise UsageError("there is no baseline among the configurations", where=_where(given), remedy=remedy)


def _where(given: str) -> str:
    return f"{OPTION}={given}"


# --- whether it may be


def may_be_saved(results: Sequence[GateResult], course: Course, record: ConfigRecord | None) -> str | None:
    """Why ``record`` may not become a baseline; ``None`` when it may.

    A baseline comes of a complete, unselected, passing session only: whatever was left out or went wrong would be
    compared with from then on. Informational gates never count, nor do gates that are skipped because there is no
    baseline yet. ``record`` is ``None`` when the configuration was not measured (or replayed) in this session.
    """
    why = [*_cut_short(course), *_selected(course), *_unjudged(results, course), *_failed(results, course)]
    why += _unfit(record, course)
    return "; ".join(why) or None


def _cut_short(course: Course) -> Iterator[str]:
    if course.interrupted:
        yield f"the run was interrupted ({course.interrupted})"
    if course.quick:
        yield "--tokenwatt-quick is for validation only"


def _selected(course: Course) -> Iterator[str]:
    options = f" ({', '.join(course.narrowed)})" if course.narrowed else ""
    if course.deselected:
        were = "item was" if course.deselected == 1 else "items were"
        yield f"{course.deselected} {were} deselected{options}"
    elif options:
        yield f"only a part was selected{options}"


def _unjudged(results: Sequence[GateResult], course: Course) -> Iterator[str]:
    judged = {result.id for result in results}
    missing = [gate for gate in course.gates if gate not in judged]
    if missing:
        yield f"not judged: {_listed(missing)}"
    elif not judged:
        yield "no gate was judged"


def _failed(results: Sequence[GateResult], course: Course) -> Iterator[str]:
    for verdict, told in (
        (Verdict.FAIL, "failed"),
        (Verdict.INVALID, "invalid"),
        (Verdict.INCONCLUSIVE, "inconclusive"),
    ):
        found = [result.id for result in results if result.verdict is verdict and not _first_of_all(result)]
        if found:
            yield f"{told}: {_listed(found)}"
    if course.failed_tests:
        yield f"{course.failed_tests} {'test' if course.failed_tests == 1 else 'tests'} failed"


def _first_of_all(result: GateResult) -> bool:
    """Whether the gate is skipped until there is a baseline, under ``on_missing_baseline: record``."""
    codes = {reason.code for reason in result.reasons}
    return result.verdict is Verdict.INCONCLUSIVE and result.on_inconclusive == "skip" and codes == {"no_baseline"}


def _unfit(record: ConfigRecord | None, course: Course) -> Iterator[str]:
    if record is None:
        yield "the configuration was not measured in this session"
        return
    if record.invalid:
        yield f"{record.key} is invalid: {record.invalid[0]}"
    elif not (record.scenarios or record.suites or record.profiles or record.drift):
        yield f"nothing was measured of {record.key}"
    if record.provenance.quick and not course.quick:
        yield f"{record.key} was measured with --tokenwatt-quick, which is for validation only"
    if record.provenance.interrupted and not course.interrupted:
        yield f"the run of {record.key} was interrupted ({record.provenance.interrupted})"


def _listed(gates: Sequence[str]) -> str:
    more = f" and {len(gates) - _NAMED} more" if len(gates) > _NAMED else ""
    return ", ".join(gates[:_NAMED]) + more


# --- storing it


def save_baseline(
    path: Path, record: ConfigRecord, *, source: Path | None, gates: Sequence[str], made: Provenance
) -> tuple[str, ...]:
    """Store a record as a baseline, and return what the user should know of it.

    ``source`` is the directory of the record's files (``None``: there are none); ``gates`` are the ids of the
    session's gates. ``made`` is the session's provenance, for a record that was measured in it. Raises ``OSError``.
    """
    notes: list[str] = []
    scores = _scores(record, source, notes)
    baseline = replace(promoted(record), provenance=_provenance(record, made, gates))
    write_baseline(path, baseline, scores)
    return (f"{record.key} is stored as baseline in {path}", *notes, *_remarks(record))


def _scores(record: ConfigRecord, source: Path | None, notes: list[str]) -> dict[str | None, Path]:
    """The files of scores, as far as they can be used later."""
    if record.drift is None or record.role != "baseline":
        return {}
    try:
        found = Reason("not_captured", "its files are not there") if source is None else read_capture(record, source)
    except UsageError as error:
        found = Reason("not_captured", str(error))
    if source is not None and not isinstance(found, Reason):
        return capture_files(record, source)
    notes.append(f"its drift is not stored, so that no candidate can be scored against it: {found}")
    return {}


def _provenance(record: ConfigRecord, made: Provenance, gates: Sequence[str]) -> Provenance:
    """The record's own; a record that came from elsewhere without any was not made by this session either."""
    own = record.provenance
    known = own if own.recorded is not None or record.stored is not None else made
    return replace(known, gates=tuple(gates))


def _remarks(record: ConfigRecord) -> Iterator[str]:
    if record.identity is not None and record.identity.simulated:
        yield "it is of the simulated engine: nothing real can be compared with it"
    if record.role != "baseline" and record.drift is not None:
        yield "its drift was scored as a candidate's: KL gates need a baseline that was captured as one"
