"""Closed-loop profiles on a running engine: repeats, their peaks, and the baseline in turn where both are up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from pytest_tokenwatt.campaign.machine import Machine
from pytest_tokenwatt.campaign.observe import Narrator
from pytest_tokenwatt.campaign.outputs import file_name, served_by, spread
from pytest_tokenwatt.campaign.peaks import PeakWatch
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.metrics.memory import peak_memory
from pytest_tokenwatt.metrics.profile import profile_rate, profile_run
from pytest_tokenwatt.records import ClosedPlan, ClosedRun, Reason
from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord, ProfileRun
from pytest_tokenwatt.spec.model import Configuration, Profile
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.requests_npz import write_requests
from pytest_tokenwatt.store.served_npz import write_served

_LEAST_WARMUP = 2
_COLD_WARMUP = 8
"""Further requests before the first measured one of an engine's life: its first ones compile and allocate."""
_OFFLINE_WARMUP = 8
_LEAST_FAILURES = 3
CAPPED = "capped"
"""The start of an engine whose KV cache has the size that a profile asks for."""
_AUDITED_STARTS = ("", CAPPED)
_AT_DEATH = ("engine_died", "too_many_failures")
_FAILED_SHARE = 0.1
"""A run with more failures than this share is given up; what is judged invalid is a smaller one."""


@dataclass(frozen=True, slots=True)
class Site:
    """One engine that profiles run on: its configuration, what is known of the machine, and what this start is called.

    ``start`` tells the starts of one configuration apart, in file names (empty for the first) and in prompts.
    """

    configuration: Configuration
    engine: RunningEngine
    machine: Machine
    start: str = ""


def measure_profile(
    name: str, profile: Profile, site: Site, session: Session, *, beside: Site | None = None, cold: bool = False
) -> ProfileRecord:
    """All repeats of a profile; with ``beside`` in turn with the baseline's on its own engine.

    ``cold`` says that the engine has answered next to nothing yet. Raises ``LoadError`` when the load generator fails
    or the time budget is used up, ``UsageError`` for a workload that cannot be offered.
    """
    key = site.configuration.key
    too_long = _too_long(name, profile, site)
    if too_long is not None:
        return unmeasured_profile(name, profile, too_long)
    session.journal.write(Event.PROFILE_STARTED, config=key, profile=name, start=site.start)
    runs, paired = _all_runs(name, profile, site, session, beside, cold=cold)
    record = _record(name, profile, site, session, runs, paired)
    session.journal.write(
        Event.PROFILE_FINISHED,
        config=key,
        profile=name,
        start=site.start,
        output_tok_s=record.output_tok_s,
        invalid=[str(reason) for reason in record.invalid],
    )
    session.say(f"{_called(site)} {name}: {_told(record)}")
    return record


def unmeasured_profile(name: str, profile: Profile, reason: Reason, load_sha256: str = "") -> ProfileRecord:
    """The record of a profile that could not be measured, for ``reason``."""
    return ProfileRecord(
        name=name,
        concurrency=profile.in_flight,
        input_tokens=profile.input_tokens,
        output_tokens=profile.output_tokens,
        requests=profile.requests,
        runs=(),
        output_tok_s=None,
        memory=PeakMemory(missing=dict.fromkeys(("peak_gib", "kv_gib"), str(reason))),
        load_sha256=load_sha256,
        invalid=(reason,),
    )


def _called(site: Site) -> str:
    return site.configuration.key + (f" ({site.start})" if site.start else "")


def _told(record: ProfileRecord) -> str:
    if record.output_tok_s is None:
        return "; ".join(map(str, record.invalid)) or "not measured"
    peak = record.memory.peak_gib
    return f"{record.output_tok_s:.4g} tok/s" + (f", peak {peak:.4g} GiB" if peak is not None else "")


def _too_long(name: str, profile: Profile, site: Site) -> Reason | None:
    needed, longest = profile.input_tokens + profile.output_tokens, site.engine.identity.max_model_len
    if longest is None or needed <= longest:
        return None
    return Reason("workload_unusable", f"{name} needs {needed} tokens a request, and max_model_len is {longest}")


def _all_runs(
    name: str, profile: Profile, site: Site, session: Session, beside: Site | None, *, cold: bool
) -> tuple[tuple[ProfileRun, ...], tuple[ProfileRun, ...]]:
    """The engine's runs and the baseline's; who goes first changes from repeat to repeat, so that drift cancels."""
    own: list[ProfileRun] = []
    other: list[ProfileRun] = []
    with ExitStack() as stack:
        sides = [(stack.enter_context(_Side(name, profile, site, session)), own)]
        if beside is not None:
            partner = replace(beside, start=f"beside-{site.configuration.key}")
            sides.append((stack.enter_context(_Side(name, profile, partner, session)), other))
        for repeat in range(profile.repeats):
            for side, runs in sides if repeat % 2 else reversed(sides):
                runs.append(side.run(repeat, cold=cold and repeat == 0))
            if any(run.invalid for run in own):
                break
    return tuple(own), tuple(other)


def _record(
    name: str,
    profile: Profile,
    site: Site,
    session: Session,
    runs: tuple[ProfileRun, ...],
    paired: tuple[ProfileRun, ...],
) -> ProfileRecord:
    machine = site.machine
    memory = peak_memory(
        runs,
        machine.startup,
        machine.weights,
        concurrency=profile.in_flight,
        tokens_per_request=profile.input_tokens + profile.output_tokens,
    )
    return ProfileRecord(
        name=name,
        concurrency=profile.in_flight,
        input_tokens=profile.input_tokens,
        output_tokens=profile.output_tokens,
        requests=profile.requests,
        runs=runs,
        output_tok_s=profile_rate(runs),
        memory=memory,
        load_sha256=session.spec.profile_digest(site.configuration, profile),
        paired=paired,
        invalid=tuple(_unlike_faults(runs)),
        notes=tuple(dict.fromkeys(f"{run.label}: {note}" for run in runs for note in run.notes)),
    )


def _unlike_faults(runs: Sequence[ProfileRun]) -> Iterator[Reason]:
    """Why runs are not to be believed, each kind once."""
    seen: dict[str, Reason] = {}
    for run in runs:
        for reason in run.invalid:
            seen.setdefault(reason.code, reason)
    yield from seen.values()


class _Side:
    """Offers one profile to one engine, repeat after repeat."""

    def __init__(self, name: str, profile: Profile, site: Site, session: Session) -> None:
        self._name = name
        self._profile = profile
        self._site = site
        self._session = session
        engine, key = site.engine, site.configuration.key
        workers = session.spec.load.workers
        self._generator = LoadGenerator(
            engine.target(site.configuration.workload),
            None if workers == "auto" else int(workers),
            engine.death,
            session.run_dir.file(f"load-{key}.log"),
        )
        self._peaks = PeakWatch(engine.read_metrics, site.machine.gpus, simulated=engine.identity.simulated)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._generator.close()

    def run(self, repeat: int, *, cold: bool) -> ProfileRun:
        """One repeat, its requests on disk, and the outputs of the first one kept for the audit."""
        self._session.deadline.check()
        plan = self._plan(repeat, cold=cold)
        narrator = Narrator(f"{_called(self._site)} {plan.label}", self._session.say)

        def look(now_s: float, ended: int, in_flight: int) -> str | None:
            narrator.tell(now_s, lambda: f"{ended} of {plan.requests} requests ended, {in_flight} in flight")
            return None

        with self._peaks.watching():
            run = self._generator.run_closed(plan, look)
        return self._kept(plan, run)

    def _kept(self, plan: ClosedPlan, run: ClosedRun) -> ProfileRun:
        site = self._site
        suffix = f"+{site.start}" if site.start else ""
        file = f"requests-{site.configuration.key}{suffix}-{plan.label}.npz"
        write_requests(self._session.run_dir.file(file), run.requests, [run.span] if run.span else [], run.anchor)
        if plan.kept:
            self._keep_outputs(plan, run)
        found = profile_run(run, self._peaks.peaks, ignore_eos=site.configuration.engine.ignore_eos, label=plan.label)
        slow = self._peaks.too_slow
        death = site.engine.death()
        # Requests to a dead engine fail faster than its death is noticed.
        invalid = tuple(
            Reason("engine_died", death) if death and each.code in _AT_DEATH else each for each in found.invalid
        )
        return replace(
            found, requests_file=file, invalid=invalid, notes=(*found.notes, *([slow] if slow is not None else []))
        )

    def _keep_outputs(self, plan: ClosedPlan, run: ClosedRun) -> None:
        shelf, key = self._session.outputs, self._site.configuration.key
        ignore_eos = self._site.configuration.engine.ignore_eos
        served = served_by(run.requests, plan.kept, shelf.picked, ignore_eos=ignore_eos)
        shelf.runs[key, self._name] = served
        if not isinstance(served, Reason):
            write_served(self._session.run_dir.file(file_name(key, self._name)), served)

    def _plan(self, repeat: int, *, cold: bool) -> ClosedPlan:
        profile, site = self._profile, self._site
        at_once = profile.concurrency == "all"
        warmup = min(_OFFLINE_WARMUP, profile.requests) if at_once else max(_LEAST_WARMUP, profile.in_flight)
        audited = self._session.outputs.picked if repeat == 0 and site.start in _AUDITED_STARTS else 0
        return ClosedPlan(
            label=f"{self._name}-r{repeat}",
            concurrency=profile.in_flight,
            warmup=warmup + (_COLD_WARMUP if cold else 0),
            requests=profile.requests,
            input_tokens=profile.input_tokens,
            output_tokens=profile.output_tokens,
            prompt_key=self._prompt_key(repeat),
            request_timeout_s=self._session.spec.measurement.request_timeout_s,
            max_failures=max(_LEAST_FAILURES, int(_FAILED_SHARE * profile.requests)),
            kept=spread(profile.requests, audited) if audited else frozenset(),
            at_once=at_once,
        )

    def _prompt_key(self, repeat: int) -> int:
        """No prompt may come twice within one engine's life, or it is in the prefix cache."""
        site = self._site
        salt = self._session.prompt_salt(site.configuration.key)
        words = f"{salt}/{site.configuration.workload.seed}/{self._name}/{site.start}/{repeat}"
        return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")
