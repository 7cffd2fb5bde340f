"""What sampling costs and whether one stalled source delays another, on a fake NVIDIA driver.

    python tests/bench/bench_power.py [--gpus 8] [--hz 10] [--seconds 20] [--stall 2]

The cost is the CPU time of the sampler's thread: this package, the binding, and the fake library in a real driver's
place. The stalled source is a second one whose every reading takes ``--stall`` seconds, as that of a BMC in trouble.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.nvml import BoardSource
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.power.source import PowerSource, Reading
from pytest_tokenwatt.records.power import PowerTrace, SensorInfo
from pytest_tokenwatt.testing.nvml import FakeNvml, compile_fake_nvml, running_fake_nvml, why_no_fake_nvml

LIMIT_SHARE = 0.01


class Metered(BoardSource):
    """The board source, with the CPU time of the thread that reads it."""

    def __init__(self, query: GpuQuery) -> None:
        super().__init__(query)
        self.cpu_s: list[tuple[float, float]] = []

    def read(self) -> Sequence[Reading]:
        """One reading, after a look at the clocks."""
        self.cpu_s.append((time.monotonic(), time.thread_time()))
        return super().read()

    def share(self) -> float:
        """CPU seconds a second between the first and the last reading."""
        (first_s, first_cpu), (last_s, last_cpu) = self.cpu_s[0], self.cpu_s[-1]
        return (last_cpu - first_cpu) / (last_s - first_s)


class Stalled:
    """A node's BMC that takes its time over every reading."""

    source = "redfish"
    kind = "node"
    label = "a stalled BMC"
    refresh_s: float | None = 60.0
    counter_hz: float | None = None
    chosen = "made up"
    notes: tuple[str, ...] = ()

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s

    def open(self) -> tuple[SensorInfo, ...]:
        """One node."""
        return (SensorInfo("node"),)

    def read(self) -> Sequence[Reading]:
        """A reading after the stall."""
        time.sleep(self._stall_s)
        return (Reading("node", 1000.0),)

    def read_counters(self) -> Mapping[str, float]:
        """There are none."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after its deadline a reading was complete, in ms, and the ticks that passed during earlier ones."""

    ticks: int
    p50: float
    p99: float
    longest: float
    missed: int

    @classmethod
    def of(cls, trace: PowerTrace) -> Lateness:
        """The lateness in a trace."""
        late = sorted(trace.lateness_ms)
        return cls(len(late), late[len(late) // 2], late[int(0.99 * (len(late) - 1))], late[-1], trace.missed)

    def __str__(self) -> str:
        return (
            f"{self.ticks} ticks, {self.missed} missed; lateness p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, "
            f"longest {self.longest:.2f} ms"
        )


def sample(sources: Mapping[str, PowerSource], hz: float, seconds: float) -> dict[str, PowerTrace]:
    """Sample the sources at once; their traces."""
    samplers = {name: Sampler(source, hz, name) for name, source in sources.items()}
    for sampler in samplers.values():
        error = sampler.start(10.0)
        if error is not None:
            raise error
    time.sleep(seconds)
    traces = {name: sampler.trace() for name, sampler in samplers.items()}
    for sampler in samplers.values():
        sampler.ask_to_stop()
    for sampler in samplers.values():
        sampler.stop(10.0)
    return traces


def measure_cost(fake: FakeNvml, hz: float, seconds: float) -> None:
    """The board source alone: its thread's share of a core."""
    source = Metered(query(fake))
    trace = sample({"board": source}, hz, seconds)["board"]
    cost = f"{100 * source.share():.2f} % of a core (may be {100 * LIMIT_SHARE:g} %)"
    print(f"{len(fake.gpus)} GPUs at {hz:g} Hz: {cost}; {Lateness.of(trace)}")


def measure_stall(fake: FakeNvml, hz: float, seconds: float, stall_s: float) -> None:
    """The board source beside one that stalls; the lateness of both."""
    traces = sample({"board": BoardSource(query(fake)), "stalled": Stalled(stall_s)}, hz, seconds)
    print(f"beside a source whose readings take {stall_s:g} s:")
    for name, trace in traces.items():
        print(f"  {name}: {Lateness.of(trace)}")


def query(fake: FakeNvml) -> GpuQuery:
    """All GPUs, and no process of an engine."""
    return GpuQuery(tuple(gpu.uuid for gpu in fake.gpus), len(fake.gpus), {}, lambda: frozenset())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--gpus", type=int, default=8, help="GPUs, at most 16")
    parser.add_argument("--hz", type=float, default=10, help="samples a second")
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement")
    parser.add_argument("--stall", type=float, default=2, help="seconds that the stalled source takes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when the fake cannot be built here."""
    options = parse(arguments)
    reason = why_no_fake_nvml()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with running_fake_nvml(compile_fake_nvml(folder), folder / "state") as fake:
            for _ in range(options.gpus):
                fake.add_gpu().set_square_wave(110.0, 620.0, 7.0)
            measure_cost(fake, options.hz, options.seconds)
            measure_stall(fake, options.hz, options.seconds, options.stall)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
