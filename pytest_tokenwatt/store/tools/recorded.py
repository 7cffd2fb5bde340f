"""A tool's run as the record of one configuration, and as a spec that names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_tokenwatt.records import (
    DEFAULT_SCENARIO,
    ConfigRecord,
    Figure,
    GoodputRecord,
    ServedIdentity,
)
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.spec.builder import one_line
from pytest_tokenwatt.store.replay.named import ROLES, config_entry, named
from pytest_tokenwatt.store.rundir import file_part
from pytest_tokenwatt.store.stored_run import StoredRun
from pytest_tokenwatt.store.tools.closed_loop import closed_loop, load_hash
from pytest_tokenwatt.store.tools.tool_run import ToolRun
from pytest_tokenwatt.store.tools.windows import judged_window, window_figures

_MAX_LABEL = 200
_USUAL_NAMES = ("profile_export_aiperf", "benchmarks")


def stored_run(run: ToolRun, path: Path) -> StoredRun:
    """The run as a replay takes it; its configuration is called by the file's name."""
    key = file_part(_name(path))
    role = key if key in ROLES else "baseline"
    label = _plain(f"{run.tool}: {run.model}" if run.model else run.tool)
    profiles = {
        profile.name: profile for profile in (closed_loop(run.tool, window) for window in run.windows) if profile
    }
    notes = (*run.notes, *_unknown(run), *_loads(run))
    record = ConfigRecord(
        key=key,
        role=role,
        label=label,
        like=None,
        identity=ServedIdentity((run.model,)) if run.model else None,
        fingerprint=None,
        contract=None,
        scenarios={DEFAULT_SCENARIO: _goodput(run, notes)},
        invalid=(),
        not_covered=(f"{run.tool} measures no accuracy, drift, memory or power, and asks the engine nothing",),
        launch={},
        minutes={},
        profiles=profiles,
        stored=StoredFigures(source=run.tool),
        provenance=Provenance(recorded=run.recorded, tool=_plain(" ".join(filter(None, (run.tool, run.version))))),
    )
    spec = named(_spec(run, profiles), [config_entry(key, role, label)])
    return StoredRun(kind=run.tool, spec=spec, records=(record,), notes=notes)


def _name(path: Path) -> str:
    """The file's name, or its folder's where a tool calls every file the same."""
    return path.absolute().parent.name or path.stem if path.stem in _USUAL_NAMES else path.stem


def _plain(text: str) -> str:
    """A text that a spec takes as it is: one line, and nothing that would stand for a variable."""
    return one_line(text).replace("$", "")[:_MAX_LABEL]


def _goodput(run: ToolRun, notes: tuple[str, ...]) -> GoodputRecord:
    """The record without an SLO, since tools keep none by percentiles.

    A single rate was measured once, and there was no bound that it could miss: a spec that brings some decides by the
    percentiles. Of several rates none counts until then (``promise.judged_by``).
    """
    offered = [window for window in run.windows if window.rate_rps is not None]
    only = run.windows[0] if len(run.windows) == 1 else None
    windows = tuple(judged_window(run.tool, window) for window in offered)
    measured = int(only is not None and bool(windows) and not only.invalid)
    return GoodputRecord(
        scenario=DEFAULT_SCENARIO,
        mode="fixed",
        slo=(),
        rate_rps=only.rate_rps if only else None,
        goodput_tok_s=None,
        output_tok_s=only.output_tok_s if only and only.rate_rps else None,
        percentiles=windows[0].percentiles if only and windows else (),
        slo_pass_count=measured,
        repeats=measured,
        highest_passing_rps=None,
        lowest_failing_rps=None,
        bracket="fixed",
        backoffs=0,
        error_pct=None,
        variance_band_pct=None,
        misses=() if offered else ("no rate was offered",),
        invalid=tuple(dict.fromkeys(reason for window in run.windows for reason in window.invalid)),
        notes=notes,
        windows=windows,
        figures=window_figures(only) if only else _several(run),
        load_sha256=load_hash(run.tool, only.load if only else _all_loads(run)),
    )


def _several(run: ToolRun) -> Mapping[str, Figure]:
    """No figure is of several loads at once; a spec's SLO picks the highest rate that passes."""
    why = f"{len(run.windows)} loads were measured, and no SLO says which of them counts"
    units = {name: figure.unit for window in run.windows for name, figure in window_figures(window).items()}
    return {name: Figure(None, unit, reason=why) for name, unit in units.items()}


def _all_loads(run: ToolRun) -> Mapping[str, Any] | None:
    loads = [window.load for window in run.windows]
    return None if None in loads else {"loads": loads}


def _spec(run: ToolRun, profiles: Mapping[str, ProfileRecord]) -> dict[str, Any]:
    """What a spec would have asked for; it has no SLO, since the file states none by percentiles."""
    rates = list(dict.fromkeys(window.rate_rps for window in run.windows if window.rate_rps is not None))
    closed = {
        name: {
            "concurrency": profile.concurrency,
            "input_tokens": profile.input_tokens,
            "output_tokens": profile.output_tokens,
            "requests": profile.requests,
            "repeats": 1,
        }
        for name, profile in profiles.items()
    }
    model = _plain(run.model or "").strip()
    return {
        "title": _plain(f"{run.tool}: {run.model}" if run.model else run.tool),
        **({"engine": {"model": model}} if model and model == run.model else {}),
        **({"sweep": {"rates": rates}, "measurement": {"repeats": 1}} if rates else {}),
        **({"profiles": closed, "gates": {"memory": {"mode": "off"}}} if closed else {}),
    }


def _unknown(run: ToolRun) -> list[str]:
    return [
        f"{run.tool} does not tell whether its client kept up, nor whether the queue grew",
        "goodput in tokens is not covered: the file does not tell which tokens met an SLO",
        f"not covered by {run.tool}: accuracy, drift, memory, power, the engine's identity",
    ]


def _loads(run: ToolRun) -> list[str]:
    """Notes on windows that offered no rate, and on requests that did not finish."""
    notes = [
        f"{window.label}: {window.no_rate}; no SLO can be decided by it, only rules on its figures"
        for window in run.windows
        if window.no_rate
    ]
    lost = [
        f"{window.label}: {window.failed} failed and {window.cut} cut off of {window.total} requests, which the tool's"
        " percentiles leave out; they count as slower than the rest, and a percentile that falls on them is unknown"
        for window in run.windows
        if window.failed or window.cut
    ]
    return [*notes, *lost]
