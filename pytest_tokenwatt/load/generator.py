"""The load generator: worker processes that are taken through one plan after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_tokenwatt.load.closed_stretch import ClosedStretch
from pytest_tokenwatt.load.crew import Crew, auto_workers
from pytest_tokenwatt.load.open_stretch import OpenStretch
from pytest_tokenwatt.records import ClosedPlan, ClosedRun, ClosedWatch, LoadPlan, LoadRun, LoadWatch, Target


class LoadGenerator:
    """Offers load to ``target``; implements ``records.Loader`` and ``records.ClosedLoader``.

    A context manager; the workers live as long as it.

    ``workers``: ``None`` chooses by the number of CPUs. ``alive`` returns ``None`` or how the engine died, and is asked
    once a second. What workers print goes to ``run_log``. POSIX only.
    """

    def __init__(self, target: Target, workers: int | None, alive: Callable[[], str | None], run_log: Path) -> None:
        self._target = target
        self._workers = workers if workers is not None else auto_workers()
        self._alive = alive
        self._run_log = run_log
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and every connection; a later ``run`` starts new ones."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan until the watch stops it, the engine dies or the deadline passes.

        Raises ``LoadError`` when a worker dies, hangs or fails (``load_worker_died``, ``load_worker_hung``,
        ``load_worker_failed``) or cannot work with the target (``bad_endpoint``, ``bad_ca_file``, ``bad_target``).
        On any exception, ``KeyboardInterrupt`` included, the workers are ended, so that no load goes on.
        """
        with self._working() as crew:
            return OpenStretch(crew, self._alive, plan, watch).carry_out()

    def run_closed(self, plan: ClosedPlan, watch: ClosedWatch) -> ClosedRun:
        """Run the plan until its last measured request has ended, or a reason stops it; raises as ``run`` does.

        What is in flight then is aborted. Each of ``concurrency`` slots belongs to one worker for the whole run.
        """
        with self._working() as crew:
            return ClosedStretch(crew, self._alive, plan, watch).carry_out()

    @contextmanager
    def _working(self) -> Iterator[Crew]:
        try:
            if self._crew is None:
                self._crew = Crew(self._target, self._workers, self._run_log)
            yield self._crew
        except BaseException:
            self.close()
            raise
