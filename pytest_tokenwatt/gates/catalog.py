"""Which gates a spec has: from the spec alone, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.gates.asked import (
    counts_drift_answers,
    is_scored,
    is_submission,
    score_limits,
    scored_tiers,
    speed_profiles,
    suite_sizes,
)
from pytest_tokenwatt.gates.figures import figure_needs
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateSpec
from pytest_tokenwatt.spec.model import Configuration, GateBlock, KeyPath, Rule, Scenario, Spec, Suite


def list_gates(spec: Spec, records: Sequence[ConfigRecord] = ()) -> tuple[GateSpec, ...]:
    """All gates of a spec, configuration by configuration in the order of the file.

    The baseline promises only absolutes (contract, SLO, rules, absolute minima); all others are compared with it. A
    block that is absent makes no gate, nor does a gate with ``mode: off``. In a replay, ``records`` that are
    submissions count as having a score block, and as asking for the mean drop that they state.
    """
    stored = {record.key: record for record in records if record.stored is not None}
    listers = [_Lister(spec, number, stored) for number in range(len(spec.configurations))]
    return tuple(gate for lister in listers for gate in lister.gates())


@dataclass(frozen=True, slots=True)
class _Lister:
    """Lists the gates of one configuration."""

    spec: Spec
    number: int
    stored: Mapping[str, ConfigRecord]

    @property
    def config(self) -> Configuration:
        """The configuration."""
        return self.spec.configurations[self.number]

    @property
    def relative(self) -> bool:
        """Whether the configuration is compared with the baseline."""
        return self.config.role != "baseline"

    def gates(self) -> Iterator[GateSpec]:
        """In the order in which design and reports list them; the score last, since it rests on the others."""
        listed = tuple(self._measured())
        yield from listed
        yield from self._score(listed)

    def _measured(self) -> Iterator[GateSpec]:
        yield from self._gate("contract", needs="contract")
        yield from self._slo()
        yield from self._goodput()
        yield from self._accuracy()
        yield from self._drift()
        yield from self._efficiency()
        yield from self._audits()
        yield from self._rules()

    def _gate(
        self,
        kind: str,
        *,
        needs: str,
        param: str | None = None,
        scenario: str | None = None,
        limits: Mapping[str, Any] | None = None,
        origin: KeyPath = (),
        informational: bool = False,
    ) -> Iterator[GateSpec]:
        """The gate of a block, unless it is off; ``origin`` is the key that asks for it if its own block does not."""
        gates = self.config.gates
        block = gates.block(kind)
        yield from self._spec(
            block,
            kind,
            param,
            needs,
            scenario,
            {**(limits or {}), "on_missing_baseline": gates.on_missing_baseline},
            self._line(("gates", kind), origin),
            informational,
        )

    def _spec(
        self,
        block: GateBlock,
        kind: str,
        param: str | None,
        needs: str,
        scenario: str | None,
        limits: Mapping[str, Any],
        line: int | None,
        informational: bool,
    ) -> Iterator[GateSpec]:
        if block.mode == "off":
            return
        yield GateSpec(
            config=self.config.key,
            gate=kind if param is None else f"{kind}[{param}]",
            kind=kind,
            param=param,
            scenario=scenario,
            needs=needs,
            mode="info" if informational else block.mode,
            on_inconclusive=self.config.gates.inconclusive(block),
            line=line,
            limits=limits,
        )

    def _line(self, path: KeyPath, origin: KeyPath) -> int | None:
        """The most specific line that asks for the gate: the configuration's own, the gate's block, its origin."""
        own = self.spec.line("configs", self.number, *path)
        if own is not None:
            return own
        return self.spec.line(*path) or (self.spec.line(*origin) if origin else None) or self.config.line

    # --- serving

    def _promising(self) -> Iterator[tuple[Scenario, str | None]]:
        """The scenarios with an SLO and what stands in the brackets: nothing without a ``scenarios`` block."""
        for scenario in self.config.scenarios:
            if scenario.bounds:
                yield scenario, None if scenario.name == DEFAULT_SCENARIO else scenario.name

    def _slo(self) -> Iterator[GateSpec]:
        at_rps = self.config.gates.slo.at_rps
        for scenario, param in self._promising():
            limits = {"at_rps": at_rps, **{bound.name: bound.bound_ms for bound in scenario.bounds}}
            yield from self._gate(
                "slo",
                needs="goodput",
                param=param,
                scenario=scenario.name,
                limits=limits,
                origin=self._slo_origin(scenario),
            )

    def _slo_origin(self, scenario: Scenario) -> KeyPath:
        names = [entry.name for entry in self.spec.scenarios]
        own: KeyPath = ("scenarios", names.index(scenario.name), "slo") if scenario.name in names else ("slo",)
        return own if self.spec.line(*own) is not None else ("slo",)

    def _goodput(self) -> Iterator[GateSpec]:
        gate = self.config.gates.goodput
        minima = {"min_tok_s": gate.min_tok_s, "min_rps": gate.min_rps}
        if not self.relative and all(minimum is None for minimum in minima.values()):
            return
        limits = {"min": gate.min if self.relative else None, **minima}
        for scenario, param in self._promising():
            yield from self._gate(
                "goodput",
                needs="goodput",
                param=param,
                scenario=scenario.name,
                limits=limits,
                origin=self._slo_origin(scenario),
                informational=all(limit is None for limit in limits.values()),
            )

    # --- quality

    def _accuracy(self) -> Iterator[GateSpec]:
        """One gate a suite, and one for their mean; the baseline's have only ``min_score``."""
        suites = self.spec.accuracy
        for number, suite in enumerate(suites):
            if self.relative or suite.min_score is not None:
                listed: KeyPath = ("accuracy", number)
                origin = listed if self.spec.line(*listed) is not None else ("accuracy",)
                limits = self._suite_limits(suite)
                yield from self._gate("accuracy", needs="accuracy", param=suite.title, limits=limits, origin=origin)
        if self.relative and (len(suites) > 1 or is_submission(self.stored.get(self.config.key))):
            limits = {
                "max_mean_drop_pts": self.config.gates.accuracy.max_mean_drop_pts,
                "suites": suite_sizes(self.spec),
                "tiers": scored_tiers(self.spec, self.stored.get(self.config.key)),
            }
            yield from self._gate("accuracy", needs="accuracy", param="mean", limits=limits, origin=("accuracy",))

    def _suite_limits(self, suite: Suite) -> dict[str, Any]:
        return {
            "rule": self.config.gates.accuracy.rule,
            "max_drop_pts": suite.max_drop_pts if self.relative else None,
            "min_score": suite.min_score,
            "limit": suite.limit,
            "seeds": suite.seeds,
            "control": suite.control,
        }

    def _drift(self) -> Iterator[GateSpec]:
        drift = self.spec.drift
        if not self.relative:
            return
        if drift is not None:
            limits = {"max_nats_per_token": drift.max_nats_per_token, "control": drift.control}
            yield from self._gate("kl", needs="drift", limits=limits, origin=("drift",))
            for number, corpus in enumerate(drift.perplexity):
                origin: KeyPath = ("drift", "perplexity", number)
                limits = {"max_dnll": corpus.max_dnll}
                yield from self._gate("perplexity", needs="drift", param=corpus.name, limits=limits, origin=origin)
        yield from self._length()

    def _length(self) -> Iterator[GateSpec]:
        """Measured of the answers to accuracy suites and drift prompts, of one or of both together."""
        suites, drift = suite_sizes(self.spec), counts_drift_answers(self.spec)
        limits = {"max_shift": self.config.gates.length.max_shift, "suites": suites, "drift": drift}
        if suites or drift:
            needs = "accuracy" if suites else "drift"
            yield from self._gate("length", needs=needs, limits=limits, origin=(needs,))

    # --- efficiency and audits

    def _efficiency(self) -> Iterator[GateSpec]:
        gates, profiles = self.config.gates, list(self.spec.profiles)
        if self.relative and (profiles or self.spec.online_slo):
            limits = {
                "min": gates.speed.min,
                "max_error": gates.speed.max_error,
                **speed_profiles(self.spec, self.config),
            }
            yield from self._gate("speed", needs="profiles", limits=limits, origin=("profiles",))
        if self.relative and profiles:
            limits = {"min": gates.memory.min, "profiles": profiles}
            yield from self._gate("memory", needs="profiles", limits=limits, origin=("profiles",))
        yield from self._energy()

    def _energy(self) -> Iterator[GateSpec]:
        gate = self.config.gates.energy
        limits = {"min": gate.min if self.relative else None, "min_tok_j": gate.min_tok_j}
        limited = any(limit is not None for limit in limits.values())
        asked = any(source.source != "none" for source in self.config.power)
        # A limit where the spec declares that there is no sensor is a promise that cannot be kept, not one to forget.
        if not self.config.power or not (limited or (asked and self.relative)):
            return
        for scenario, param in self._promising():
            yield from self._gate(
                "energy",
                needs="goodput",
                param=param,
                scenario=scenario.name,
                limits=limits,
                origin=("power",),
                informational=not limited,
            )

    def _audits(self) -> Iterator[GateSpec]:
        profiles = self.spec.profiles
        if self.relative and self.spec.audit is not None:
            limits = {**self.spec.audit.model_dump(), "profiles": list(profiles)}
            yield from self._gate("audit", needs="audit", limits=limits, origin=("audit",))
        if self.relative and self.spec.budget is not None:
            # A profile with a KV cache of its own is cut already.
            uncut = [name for name, profile in profiles.items() if profile.kv_gib is None]
            limits = {**self.spec.budget.model_dump(), "profiles": uncut}
            yield from self._gate("budget", needs="budget", limits=limits, origin=("budget",))
        if self.config.precision is not None:
            yield from self._gate("precision", needs="contract", limits={"declared": self.config.precision})

    def _score(self, listed: Sequence[GateSpec]) -> Iterator[GateSpec]:
        if self.relative and is_scored(self.spec, self.stored.get(self.config.key)):
            limits = score_limits(self.spec, self.config, listed)
            yield from self._gate("score", needs="score", limits=limits, origin=("score",))

    # --- the user's own rules

    def _rules(self) -> Iterator[GateSpec]:
        needs = figure_needs(self.spec)
        for number, rule in enumerate(self.config.gates.rules):
            if self._applies(rule):
                yield from self._spec(
                    rule,
                    "rule",
                    rule.name,
                    needs.get(rule.metric, "goodput"),
                    rule.scenario,
                    self._rule_limits(rule),
                    self._line(("gates", "rules", number), ()),
                    informational=False,
                )

    def _applies(self, rule: Rule) -> bool:
        """Compared with itself the baseline would always pass, so that it has only a rule's absolute bounds."""
        listed = rule.configs is None or self.config.key in rule.configs
        return listed and (self.relative or rule.min is not None or rule.max is not None)

    def _rule_limits(self, rule: Rule) -> dict[str, Any]:
        return {
            "metric": rule.metric,
            "min": rule.min,
            "max": rule.max,
            "min_ratio": rule.min_ratio if self.relative else None,
            "max_ratio": rule.max_ratio if self.relative else None,
            "on_missing_baseline": self.config.gates.on_missing_baseline,
        }
