"""What a verdict means to pytest: passed, failed, skipped or expected to fail; its exit code, its JUnit properties."""

from __future__ import annotations

import pytest
from _pytest.outcomes import Failed

from pytest_tokenwatt.errors import GateFailed
from pytest_tokenwatt.records import GateResult, Verdict
from pytest_tokenwatt.report.junit import junit_properties

PASSING = frozenset({Verdict.PASS, Verdict.INFO})
FAILED, INCONCLUSIVE, INVALID = 1, 10, 11
_CODES: dict[str, int] = {Verdict.INCONCLUSIVE: INCONCLUSIVE, Verdict.INVALID: INVALID}


class MeasurementFailed(Failed):
    """A test asked for a measurement that is not there; shown as one line, without a traceback."""

    # As pytest does for its own outcomes: the summary shows the bare name.
    __module__ = "builtins"

    def __init__(self, error: Exception, verdict: Verdict) -> None:
        self.verdict: str = verdict
        super().__init__(f"{type(error).__name__}: {error}", pytrace=False)


def sentence(result: GateResult) -> str:
    """A verdict on one line: what was found, what was asked, and why."""
    rule = f", rule {result.rule}" if result.rule else ""
    why = "".join(f"; {reason}" for reason in result.reasons)
    found = result.text if result.text and result.text != result.verdict.value else "no value"
    line = f"{result.config} {result.gate}: {result.verdict.value}: {found}{rule}{why}"
    return " ".join(line.split())


def settle(result: GateResult) -> None:
    """Return when the gate passed, else raise what pytest reports as the verdict's outcome.

    An informational gate cannot fail, but what was not measured is skipped: pytest would count it as passed.
    """
    if result.verdict is Verdict.INFO and result.found is Verdict.INVALID:
        pytest.skip(sentence(result))
    if result.verdict in PASSING:
        return
    if result.verdict is Verdict.INCONCLUSIVE and result.on_inconclusive == "skip":
        pytest.skip(sentence(result))
    if result.verdict is Verdict.INCONCLUSIVE and result.on_inconclusive == "xfail":
        # Not pytest.xfail(): under --runxfail that function does nothing, and the gate would pass.
        raise pytest.xfail.Exception(sentence(result))
    raise failure(result)


def code_of(error: BaseException) -> int:
    """The exit code that a failure asks for: 10 or 11 for a verdict that is neither pass nor fail, else 1."""
    verdict = error.verdict if isinstance(error, (GateFailed, MeasurementFailed)) else Verdict.FAIL
    return _CODES.get(verdict, FAILED)


def failure(result: GateResult) -> GateFailed:
    """The exception of a verdict that is not a pass."""
    return GateFailed(sentence(result), result.verdict)


def file_properties(item: pytest.Item, result: GateResult) -> None:
    """Attach the verdict to the item's JUnit case."""
    item.user_properties.extend(junit_properties(result))


def forget_properties(item: pytest.Item) -> None:
    """Drop the verdicts of an earlier attempt: a rerun reports its own."""
    item.user_properties[:] = [each for each in item.user_properties if not each[0].startswith("tokenwatt_")]
