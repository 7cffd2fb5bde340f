"""Accuracy in a lab report: the suites, each configuration's answers to them, and why any of it is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, SuiteRecord
from pytest_tokenwatt.records.accuracy import AccuracyDelta, DomainDelta, FlipRate, SuiteDelta
from pytest_tokenwatt.report.told import NOT_STORED
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Spec, Suite

NOT_COMPARED = AccuracyDelta({})
_COMPARED = ("flips", "interval_pts", "mid_p")
_FIGURES = ("score", "delta_pts", "spread_pts")


def accuracy_block(spec: Spec, records: Sequence[ConfigRecord]) -> dict[str, Any] | list[dict[str, Any]]:
    """What was asked and how far it may drop; a list with several suites."""
    suites = [_suite(suite, records) for suite in spec.accuracy]
    if len(suites) > 1:
        return suites
    return suites[0] if suites else {"suite": None, "threshold_pts": None}


def _suite(suite: Suite, records: Sequence[ConfigRecord]) -> dict[str, Any]:
    found = [record.suites[suite.title] for record in records if suite.title in record.suites]
    asked = next((each for each in found if each.score is not None), None)
    return {
        "suite": suite.title,
        "threshold_pts": suite.max_drop_pts,
        "n": _items(asked) if asked else None,
        "seeds": suite.seeds,
        "scorer": suite.scorer,
        "shots": suite.shots,
        "sha256": (asked.sha256 or None) if asked else None,
    }


def _items(record: SuiteRecord) -> int | None:
    """How many different items were asked."""
    return len({item.id for item in record.items}) or record.answered


def suite_hashes(records: Sequence[ConfigRecord]) -> dict[str, dict[str, str | None]]:
    """SHA-256 of what each configuration was asked, by suite."""
    return {record.key: {name: suite.sha256 or None for name, suite in record.suites.items()} for record in records}


def accuracy_entry(
    record: ConfigRecord, suites: Sequence[Suite], delta: AccuracyDelta | None
) -> dict[str, Any] | list[dict[str, Any]]:
    """One configuration's answers; a list with several suites. ``delta`` is ``None`` where nothing was compared."""
    names = _names(record, suites)
    entries = [_entry(record, name, delta or NOT_COMPARED) for name in names]
    if len(entries) > 1:
        return entries
    return entries[0] if entries else dict.fromkeys(_FIGURES)


def _names(record: ConfigRecord, suites: Sequence[Suite]) -> list[str]:
    return list(dict.fromkeys([*(suite.title for suite in suites), *record.suites]))


def accuracy_summary(delta: AccuracyDelta | None) -> dict[str, Any]:
    """Several suites together, as a field of the configuration; nothing below two that were compared."""
    if delta is None or len(delta.suites) < 2:
        return {}
    return {
        "accuracy_summary": {
            "mean_drop_pts": delta.mean_drop_pts,
            "worst": delta.worst,
            "worst_drop_pts": delta.worst_drop_pts,
            "tier": delta.tier,
            "valid_domains": delta.valid_domains,
            "left_out": list(delta.left_out),
        }
    }


def _entry(record: ConfigRecord, name: str, delta: AccuracyDelta) -> dict[str, Any]:
    suite, compared = record.suites.get(name), delta.suites.get(name, SuiteDelta())
    score = suite.score if suite else None
    own = record.role == "baseline"
    entry = {
        "score": score,
        "delta_pts": (None if score is None else 0.0) if own else compared.delta_pts,
        "spread_pts": suite.spread_pts if suite else None,
        "suite": name,
        "n": (suite.answered if suite else None) if compared.n is None else compared.n,
        "counts": (dict(suite.counts) or None) if suite else None,
        **({} if own else _comparison(compared)),
        **_control(delta.controls.get(name)),
        "validity": validity((*record.invalid, *(suite.invalid if suite else ()))),
        "notes": list(suite.notes) if suite else [],
    }
    nulls = [field for field, value in entry.items() if value is None]
    return {**entry, "missing": {field: _why_none(field, record, suite, compared) for field in nulls}}


def _comparison(delta: SuiteDelta) -> dict[str, Any]:
    """Flips, the 95 % interval and the drop that so many items can resolve; domains where the suite has any."""
    flips = {"right_to_wrong": delta.right_to_wrong, "wrong_to_right": delta.wrong_to_right}
    domains = {name: _domain(domain) for name, domain in delta.domains.items()}
    return {
        "flips": None if delta.right_to_wrong is None else flips,
        "interval_pts": None if delta.interval_pts is None else list(delta.interval_pts),
        "mid_p": delta.mid_p,
        "resolvable_drop_pts": delta.resolvable_pts,
        "flip_rate": delta.flip_rate,
        "flip_rate_source": delta.flip_source,
        **({"domains": domains} if domains else {}),
    }


def _domain(domain: DomainDelta) -> dict[str, Any]:
    return {
        "delta_pts": domain.delta_pts,
        "interval_pts": list(domain.interval_pts),
        "n": domain.n,
        "holm_p": domain.p_value,
    }


def _control(flips: FlipRate | None) -> dict[str, Any]:
    if flips is None:
        return {}
    return {"control": {"flip_rate": flips.share, "flips": flips.flips, "n": flips.n}}


def _why_none(name: str, record: ConfigRecord, suite: SuiteRecord | None, delta: SuiteDelta) -> str:
    """Why the field ``name`` of an entry is ``None``."""
    if suite is None or suite.score is None:
        return _unscored(record, suite)
    if name in ("counts", "spread_pts") and record.stored is not None:
        return NOT_STORED
    if name == "spread_pts":
        return "one seed has no spread" if suite.seeds == 1 else "not known of every seed"
    if name not in ("n", "counts") and delta.delta_pts is None:
        return str(delta.fault or "there is no baseline to compare with")
    if name in _COMPARED and delta.interval_pts is None:
        return "the record has no results of single items"
    if record.stored is not None and name in _COMPARED:
        return NOT_STORED
    if name == "mid_p":
        return "items share a template or are asked with several seeds, so that flips are not independent"
    return "the record does not tell how many items were asked"


def _unscored(record: ConfigRecord, suite: SuiteRecord | None) -> str:
    """Why a configuration has no score on a suite."""
    reasons = (*record.invalid, *(suite.invalid if suite else ()))
    return "; ".join(map(str, reasons)) or "not measured in this run"


def unseen_accuracy(spec: Spec, records: Sequence[ConfigRecord]) -> Iterator[str]:
    """One line for each suite without a score and each reason, naming the configurations unless it is all of them."""
    if not spec.accuracy:
        yield "Accuracy: the spec has no accuracy block"
    for suite in spec.accuracy:
        lacking = dict(_without_score(records, suite.title))
        for why in dict.fromkeys(lacking.values()):
            keys = [key for key, reason in lacking.items() if reason == why]
            line = f"Accuracy ({suite.title}): {why}"
            yield line if len(keys) == len(records) else f"{', '.join(keys)}: {line}"


def _without_score(records: Sequence[ConfigRecord], name: str) -> Iterator[tuple[str, str]]:
    for record in records:
        suite = record.suites.get(name)
        if suite is None or suite.score is None:
            yield record.key, _unscored(record, suite)


def answers_files(record: ConfigRecord) -> list[str]:
    """The files with the answers' texts."""
    return [suite.answers_file for suite in record.suites.values() if suite.answers_file]
