"""Power of GPUs as NVIDIA's dcgm-exporter tells it: the way on Kubernetes, and for several hosts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.dcgm_series import COUNTER, Board, Scrape
from pytest_tokenwatt.power.http import HttpFailure, HttpReader, build_access
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED, as_missing, missing, reading
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

# Power and energy are asked one after the other, and come from the same page.
_SHARED_S = 0.25
_MISMATCH = "gpu_count_mismatch"
_MJ_PER_J = 1e3


class DcgmSource:
    """Reads the Prometheus text of one dcgm-exporter a host; GPUs are told apart by their UUIDs.

    Under test are the GPUs that ``match`` names (a UUID or the start of one, or a mapping of labels), else those of
    ``hardware.gpus``, else all, if they are as many as the spec's model needs.
    """

    source = "dcgm"
    kind = "board"
    label = "GPU board power sum (dcgm-exporter)"
    refresh_s: float | None = 30.0
    counter_hz: float | None = 1 / 30.0

    def __init__(self, settings: PowerSource, context: SourceContext) -> None:
        self._urls = tuple(dict.fromkeys(([settings.url] if settings.url else []) + list(settings.urls)))
        if not self._urls:
            raise PowerError(NO_SOURCE, "power.urls is missing", remedy="add urls: [http://…:9400/metrics]")
        self._settings = settings
        self._context = context
        self._http: HttpReader | None = None
        self._scrape = Scrape((), ())
        self._scraped_s = float("-inf")
        self._sensors: tuple[SensorInfo, ...] = ()
        self._chosen = ""
        self._notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> str:
        """How the GPUs under test were found."""
        return self._chosen

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report: MIG, counters that are absent, unverified certificates."""
        return self._notes

    def open(self) -> tuple[SensorInfo, ...]:
        """The GPUs under test.

        Raises ``PowerError``: ``no_power_source`` when an exporter cannot be read or has no power in it,
        ``gpu_count_mismatch`` when it cannot be told which GPUs are meant.
        """
        access = build_access(self._settings, self._context.environ, self._context.spec_dir)
        self._http = HttpReader(access)
        try:
            scrape = self._fetch()
        except HttpFailure as failure:
            raise as_missing(failure) from None
        if scrape.failures:
            # A sum over the hosts that answered would be short.
            raise as_missing(scrape.failures[0])
        if not scrape.boards:
            what = f"{', '.join(self._urls)}: there is no series DCGM_FI_DEV_POWER_USAGE with a UUID"
            raise PowerError(NO_SOURCE, what, remedy="check power.urls, and the counters that the exporter collects")
        boards = self._choose(scrape.boards)
        self._sensors = tuple(board.info() for board in boards)
        self._notes = (*access.notes, *_remarks(boards))
        return self._sensors

    def read(self) -> Sequence[Reading]:
        """Watts and clock-event reasons of each GPU. Raises ``PowerError`` when no exporter answers."""
        scrape = self._fetch()
        boards = {board.uuid: board for board in scrape.boards}
        return [_reading(info.sensor, boards.get(info.sensor), scrape.failures) for info in self._sensors]

    def read_counters(self) -> Mapping[str, float]:
        """Cumulative joules of each GPU whose counter is exported. Raises ``PowerError`` when no exporter answers."""
        fresh = time.monotonic() - self._scraped_s <= _SHARED_S
        scrape = self._scrape if fresh else self._fetch()
        wanted = {info.sensor for info in self._sensors}
        counted = {board.uuid: board.energy_mj for board in scrape.boards if board.uuid in wanted}
        return {uuid: energy / _MJ_PER_J for uuid, energy in counted.items() if energy is not None}

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _fetch(self) -> Scrape:
        if self._http is None:
            raise PowerError(READ_FAILED, "the dcgm source is not open")
        answers = self._http.get_all(self._urls)
        failures = tuple(answer for answer in answers if isinstance(answer, HttpFailure))
        if len(failures) == len(answers):
            raise failures[0]
        texts = [answer for answer in answers if isinstance(answer, str)]
        self._scrape, self._scraped_s = Scrape.parse(texts, failures), time.monotonic()
        return self._scrape

    def _choose(self, boards: Sequence[Board]) -> list[Board]:
        match, gpus = self._settings.match, self._context.gpus
        if match is not None:
            found = [board for board in boards if board.fits(match)]
            self._chosen = f"{len(found)} GPU(s) that fit power.match"
            return found if found else _refuse(f"no GPU fits power.match {match}", boards)
        if gpus.listed is not None:
            self._chosen = "listed in hardware.gpus"
            return [_named(uuid, boards) for uuid in gpus.listed]
        if len(boards) != gpus.expected:
            _refuse(f"the spec's model needs {gpus.expected} GPU(s), the exporters list {len(boards)}", boards)
        self._chosen = f"all {len(boards)} GPU(s) of the exporters, as many as the model needs"
        return list(boards)


def _named(uuid: str, boards: Sequence[Board]) -> Board:
    fitting = [board for board in boards if board.fits(uuid)]
    if len(fitting) != 1:
        problem = "fits several GPUs" if fitting else "is listed by no exporter"
        _refuse(f"hardware.gpus: {uuid} {problem}", boards)
    return fitting[0]


def _refuse(what: str, boards: Sequence[Board]) -> list[Board]:
    listed = ", ".join(f"{board.uuid} (gpu {board.label('gpu')} of {board.label('Hostname')})" for board in boards)
    remedy = "name them in hardware.gpus or power.match (a UUID, or labels such as {Hostname: …})"
    raise PowerError(_MISMATCH, f"{what}; there are {listed}", remedy=remedy)


def _reading(uuid: str, board: Board | None, failures: Sequence[HttpFailure]) -> Reading:
    if board is None:
        # An exporter leaves out what its last collection did not give; the GPU may be lost, or only its host busy.
        return missing(uuid, str(failures[0]) if failures else f"no exporter has power of {uuid} any more")
    found = reading(uuid, board.watts, "dcgm-exporter")
    return Reading(uuid, found.watts, reasons=board.reasons, problem=found.problem)


def _remarks(boards: Sequence[Board]) -> list[str]:
    notes = [
        f"{board.uuid} is split into {board.instances} MIG instance(s); the power is that of the whole board"
        for board in boards
        if board.instances
    ]
    uncounted = [board.uuid for board in boards if board.energy_mj is None]
    if uncounted:
        notes.append(f"{COUNTER} is not exported for {', '.join(uncounted)}")
    return notes
