"""A lab that measures nothing and reads its verdicts from the spec, for the tests of what pytest makes of them.

``x-verdicts`` maps ``config::gate`` to a verdict (default pass), ``x-problems`` lists what preflight finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pytest_tokenwatt.plugin
import pytest_tokenwatt.plugin.active
from pytest_tokenwatt.campaign.desk import Finished, LabEvents, LabOptions
from pytest_tokenwatt.campaign.saving import Course, SaveRequest
from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.records import DEFAULT_SCENARIO, GateResult, GateSpec, Reason, Verdict
from pytest_tokenwatt.spec.model import Configuration, Spec

SPEC = """\
name: lab
title: A scripted lab
engine:
  command: [nothing, --port, "{port}"]
  model: toy
slo:
  ttft_p99_ms: 100
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned}
gates:
  rules:
    - {name: fast, metric: ttft_p50_ms, max: 10}
"""
ALL = [
    "lab.yaml::baseline::contract",
    "lab.yaml::baseline::slo",
    "lab.yaml::baseline::rule[fast]",
    "lab.yaml::tuned::contract",
    "lab.yaml::tuned::slo",
    "lab.yaml::tuned::goodput",
    "lab.yaml::tuned::rule[fast]",
]
REAL = """\
engine:
  command: ["{python}", -m, pytest_tokenwatt, simulate, --port, "{port}"]
  ready_timeout_s: 60
  stop_timeout_s: 5
slo: {ttft_p90_ms: 20000, tpot_p90_ms: 2000}
workload: {input_tokens: 32, output_tokens: 8}
measurement: {warmup_s: 0.3, warmup_max_s: 1, window_s: 1.5, repeats: 2, request_timeout_s: 20}
sweep: {rates: [15]}
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--seed, "1"]}}
gates:
  goodput: {min: 0.5}
"""


class ScriptedLab:
    """Implements what the plugin asks of a lab; ``calls`` collects the calls of all labs of a test in order."""

    calls: ClassVar[list[str]] = []
    options: ClassVar[list[LabOptions]] = []
    specs: ClassVar[list[Spec]] = []
    looked_at: ClassVar[list[str]] = []
    kinds: ClassVar[list[list[str]]] = []

    def __init__(self, spec: Spec, options: LabOptions, events: LabEvents) -> None:
        self.spec = spec
        self.gates = list_gates(spec)
        self.run_dir = Path("runs") / spec.name
        self.options.append(options)
        self.specs.append(spec)
        self._events = events
        self._results: dict[str, GateResult] = {}
        self.finished: Finished | None = None

    def preflight(self, selected: Sequence[GateSpec], also: Sequence[str]) -> list[Problem]:
        self.looked_at.extend(also)
        return [
            Problem(**{"path": "lab.yaml", "line": None, "key": None, **each}) for each in self._script("problems", [])
        ]

    def minutes(self, selected: Sequence[GateSpec], also: Sequence[str]) -> float:
        return float(self._script("minutes", 0))

    def plan_text(
        self, selected: Sequence[GateSpec], width: int, color: bool, encoding: str, also: Sequence[str]
    ) -> str:
        return f"PLAN of {len(selected)} gates\n"

    def select(
        self,
        selected: Sequence[GateSpec],
        live_configs: Sequence[str],
        kinds: frozenset[str],
        measured: Sequence[str],
    ) -> None:
        self.kinds.append(sorted(kinds))
        self._note("select", str(len(selected)), *live_configs)

    def last_phase_of(self, gate: GateSpec) -> str:
        return str(self._script("last-phase", {}).get(f"{gate.config}::{gate.gate}", gate.config))

    compares_with_stored = False
    decides_nothing = False

    def baseline_configuration(self) -> Configuration | None:
        return self.spec.baseline

    def save_baselines(self, requests: Sequence[SaveRequest], course: Course) -> list[str]:
        self._note("save", *(request.key for request in requests))
        return [f"{len(requests)} saved, {course.deselected} deselected"]

    def measured_last(self, kinds: Iterable[str]) -> bool:
        return bool(self._script("after", False)) and bool(list(kinds))

    def judge(self, gate: GateSpec) -> GateResult:
        identity = f"{gate.config}::{gate.gate}"
        if identity not in self._results:
            self._note("measure", identity)
            self._events.line(f"measuring {identity}")
            self._results[identity] = self._scripted(gate, identity)
        return self._results[identity]

    def goodput(self, config: str, scenario: str = DEFAULT_SCENARIO) -> str:
        self._note("goodput", config)
        return f"goodput of {config}"

    def energy(self, config: str, scenario: str = DEFAULT_SCENARIO) -> str:
        self._note("energy", config)
        return f"energy of {config}"

    def power(self, config: str) -> str:
        self._note("power", config)
        return f"power of {config}"

    def accuracy(self, config: str, suite: str | None = None) -> str:
        self._note("accuracy", config)
        return f"accuracy of {config}"

    def length_shift(self, config: str) -> str:
        self._note("length_shift", config)
        return f"length_shift of {config}"

    def kl_drift(self, config: str) -> str:
        self._note("kl_drift", config)
        return f"kl_drift of {config}"

    def perplexity(self, config: str, corpus: str | None = None) -> str:
        self._note("perplexity", config)
        return f"perplexity of {config}"

    def memory(self, config: str) -> str:
        self._note("memory", config)
        return f"memory of {config}"

    def speed(self, config: str) -> str:
        self._note("speed", config)
        return f"speed of {config}"

    def audit(self, config: str) -> str:
        self._note("audit", config)
        return f"audit of {config}"

    def engine(self, config: str) -> str:
        self._note("engine", config)
        return f"engine of {config}"

    def record_gate(
        self, config: str, name: str, value: float | None, op: str, limit: float, unit: str | None
    ) -> GateResult:
        verdict = Verdict.PASS if value is not None and value >= limit else Verdict.FAIL
        return _result(config, name, verdict, text=f"{value} {unit or ''}".strip(), rule=f"{op} {limit}")

    def leave(self, config: str | None) -> None:
        self._note("leave", str(config))

    def interrupted(self) -> None:
        self._note("interrupted")

    def finish(self) -> Finished | None:
        self._note("finish")
        results = tuple(self._results.values())
        path = self.run_dir / "report.json"
        if results:
            self.finished = Finished(results, {}, path, 0, "scripted", ())
        if self._script("unwritable", False):
            raise OSError(28, "No space left on device")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return self.finished

    def close(self) -> None:
        self._note("close")

    def _scripted(self, gate: GateSpec, identity: str) -> GateResult:
        script = self._script("verdicts", {}).get(identity, "pass")
        if script == "interrupt":
            raise KeyboardInterrupt
        word, _, found = script.partition(" ")
        verdict = Verdict(word)
        told = found or verdict not in {Verdict.PASS, Verdict.INFO}
        reasons = (Reason("scripted", "the script says so"),) if told else ()
        return _result(
            gate.config,
            gate.gate,
            verdict,
            text="12.4 req/s",
            rule="<= 100 ms",
            reasons=reasons,
            found=Verdict(found) if found else None,
            on_inconclusive=gate.on_inconclusive,
            line=gate.line,
        )

    def _script(self, name: str, default: Any) -> Any:
        return self.spec.raw.get(f"x-{name}", default)

    def _note(self, *words: str) -> None:
        self.calls.append(" ".join(words))


def _result(config: str, gate: str, verdict: Verdict, *, text: str, rule: str, **more: Any) -> GateResult:
    known: dict[str, Any] = {"mode": "enforce", "reasons": (), **more}
    return GateResult(
        id=f"lab.yaml::{config}::{gate}",
        config=config,
        gate=gate,
        value=12.4,
        unit="req/s",
        limit=100.0,
        error=None,
        verdict=verdict,
        text=text,
        rule=rule,
        **known,
    )


class Project:
    """A directory with a spec, run by an inner pytest whose lab is scripted."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.calls = ScriptedLab.calls
        self.options = ScriptedLab.options
        self.specs = ScriptedLab.specs
        self.looked_at = ScriptedLab.looked_at
        self.looked_at.clear()
        self.kinds = ScriptedLab.kinds
        self.kinds.clear()
        self.calls.clear()
        self.options.clear()
        self.specs.clear()
        monkeypatch.setattr("pytest_tokenwatt.plugin.bench.Lab", ScriptedLab)
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        self.spec()

    def spec(self, name: str = "lab.yaml", extra: str = "", text: str = SPEC) -> Path:
        """Write a spec."""
        path = self.pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + extra, encoding="utf-8")
        return path

    def run(self, *args: str) -> pytest.RunResult:
        """Run the inner pytest with our plugin and no other one, installed or not."""
        return self.pytester.runpytest_inprocess(*args, plugins=[pytest_tokenwatt.plugin], no_reraise_ctrlc=True)

    def collected(self, *args: str) -> list[str]:
        """The node ids that the inner pytest selects, in order."""
        result = self.run("--collect-only", "-q", *args)
        return [line for line in result.outlines if "::" in line]


def run_real(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *args: str) -> pytest.RunResult:
    """Run the inner pytest on the real lab."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(pytest_tokenwatt.__file__).parents[1]))
    return pytester.runpytest_inprocess(*args, "-p", "no:cacheprovider", plugins=[pytest_tokenwatt.plugin])
