"""One load of another tool as a window of a record, and its figures by the names that rules use."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tokenwatt.records import ClientHealth, Figure, WindowResult
from pytest_tokenwatt.store.tools.known import of_slo, percentiles
from pytest_tokenwatt.store.tools.tool_run import ToolWindow

NO_SLO = "no SLO was given"


def judged_window(tool: str, window: ToolWindow) -> WindowResult:
    """The window before any SLO: it passes none.

    What the tool does not tell (the client's health, the queue) is unknown or empty here, and said in the notes.
    """
    return WindowResult(
        kind="fixed",
        label=window.label,
        rate_rps=window.rate_rps or 0.0,
        start_s=0.0,
        end_s=window.duration_s,
        planned=window.total,
        ok=window.finished,
        failures={name: count for name, count in (("failed", window.failed), ("cut_off", window.cut)) if count},
        failure_example=None,
        percentiles=tuple(found for found, _ in percentiles(window) if of_slo(found.metric)),
        stable=True,
        waiting_growth=None,
        output_tokens=window.output_tokens or 0,
        good_tokens=0,
        output_tok_s=window.output_tok_s,
        goodput_tok_s=None,
        passes=False,
        misses=(NO_SLO,),
        decided=f"told by {tool}",
        invalid=window.invalid,
        client=_client(window),
    )


def window_figures(window: ToolWindow) -> dict[str, Figure]:
    """Every number of a window that a rule may name; those that the file lacks have the reason instead."""
    return {**_counted(window), **{found.name: figure for found, figure in percentiles(window)}}


def _counted(window: ToolWindow) -> Mapping[str, Figure]:
    untold = "the file does not tell it"
    values = {
        "rate_rps": (window.rate_rps, "req/s", window.no_rate or untold),
        "finished_rps": (window.finished / window.duration_s, "req/s", untold),
        "good_rps": (window.good_rps, "req/s", "the tool was given no goodput bounds"),
        "output_tok_s": (window.output_tok_s, "tok/s", untold),
        "goodput_tok_s": (None, "tok/s", "the file does not tell which tokens met an SLO"),
        "requests": (float(window.total), "requests", untold),
        "failed_requests": (float(window.failed), "requests", untold),
        "cut_requests": (float(window.cut), "requests", untold),
        "input_tokens": (_float(window.input_tokens), "tokens", untold),
        "output_tokens": (_float(window.output_tokens), "tokens", untold),
        "duration_s": (window.duration_s, "s", untold),
    }
    return {
        name: Figure(value, unit, reason=why if value is None else None) for name, (value, unit, why) in values.items()
    }


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _client(window: ToolWindow) -> ClientHealth:
    return ClientHealth(
        lag_p99_ms=None,
        lag_limit_ms=0.0,
        cpu_share_max=None,
        sent=window.total,
        offered=window.total,
        length_off=0,
        finished=window.finished,
        usage_missing=0,
        prompt_tokens=window.input_tokens or 0,
        cached_tokens=None,
        dispersion=None,
        capped=0,
    )
