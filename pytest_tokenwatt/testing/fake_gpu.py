"""One GPU of the fake NVIDIA driver: what a test can make it say."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_serials = itertools.count(1)
_NEVER = float("inf")


def next_serial() -> int:
    """Numbers that tell a rule from every earlier one: the library counts calls by them."""
    return next(_serials)


@dataclass(frozen=True, slots=True)
class _Wave:
    from_s: float
    low_w: float
    high_w: float
    period_s: float
    duty: float

    def joules(self, since_s: float) -> float:
        whole, rest = divmod(since_s, self.period_s)
        high_s = whole * self.period_s * self.duty + min(rest, self.period_s * self.duty)
        return self.low_w * since_s + (self.high_w - self.low_w) * high_s

    def line(self) -> str:
        return f"wave {self.from_s!r} {self.low_w!r} {self.high_w!r} {self.period_s!r} {self.duty!r}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a function of the library does instead of answering; ``gpu`` −1 stands for all."""

    gpu: int
    symbol: str
    code: int
    after: int
    delay_s: float
    field: int

    def line(self, serial: int) -> str:
        """The rule as the library reads it."""
        return f"rule {serial} {self.gpu} {self.symbol} {self.code} {self.after} {self.delay_s!r} {self.field}"


class FakeGpu:
    """A GPU board. Every method takes effect at the library's next call; instants are ``time.monotonic()``.

    Power is what the board draws; the sensor shows its average over ``boxcar_s`` and renews it every ``refresh_s``.
    The energy counter is the exact integral of power.
    """

    def __init__(self, index: int, uuid: str, name: str, bus_id: str, changed: Callable[[], None]) -> None:
        self.index = index
        self.uuid = uuid
        self.name = name
        self.bus_id = bus_id
        self._changed = changed
        self._rules: dict[int, Rule] = {}
        self._waves = [_Wave(time.monotonic(), 300.0, 300.0, 1.0, 0.5)]
        self._sensor = (1.0, 0.1, 0.0, 1)
        self._counter = ("live", 1_000_000.0, self._waves[0].from_s, _NEVER)
        self._reasons = 0
        self._limit_w = (700.0, 700.0)
        self._memory = (80 * 2**30, 0)
        self._bus = (2619, 5120)
        self._architecture = 9
        self._pids: tuple[int, ...] = ()
        self._mig: tuple[str, ...] | None = None
        self._throttle: tuple[float, ...] = (self._waves[0].from_s, 0, 0, 0, 0, 0, 0)

    def set_power(self, watts: float) -> None:
        """Draw constant power from now on."""
        self.set_square_wave(watts, watts, 1.0)

    def set_square_wave(self, low_w: float, high_w: float, period_s: float, duty: float = 0.5) -> None:
        """From now on draw ``high_w`` for the first ``duty`` share of each period, ``low_w`` for the rest."""
        self._waves.append(_Wave(time.monotonic(), low_w, high_w, period_s, duty))
        self._changed()

    def set_sensor(
        self, *, boxcar_s: float = 1.0, refresh_s: float = 0.1, jitter_w: float = 0.0, stamped: bool = True
    ) -> None:
        """How the sensor shows power: averaged over, renewed every, and with up to so much noise on each value.

        Not ``stamped``: the time stamp of its values stands still.
        """
        self._sensor = (boxcar_s, refresh_s, jitter_w, int(stamped))
        self._changed()

    def true_energy_j(self, start_s: float, end_s: float) -> float:
        """What the board really used between two instants."""
        return self._integral_j(end_s) - self._integral_j(start_s)

    def counter_live(self) -> None:
        """Let the energy counter count, as it does at first."""
        self._set_counter("live", 1_000_000.0)

    def counter_absent(self) -> None:
        """Answer NotSupported to who asks for energy."""
        self._set_counter("absent", 0.0)

    def counter_constant(self, joules: float) -> None:
        """Answer with success, and always the same; 0 is a counter that some boards have."""
        self._set_counter("constant", joules)

    def counter_reset(self, joules: float = 0.0) -> None:
        """Start again from ``joules`` now, as a reload of the driver does."""
        self._set_counter("live", joules)

    def counter_frozen(self, at_s: float | None = None) -> None:
        """Stop counting at an instant (now)."""
        self._counter = (*self._counter[:3], time.monotonic() if at_s is None else at_s)
        self._changed()

    def set_reasons(self, bits: int) -> None:
        """The clock-event reasons in force."""
        self._reasons = bits
        self._changed()

    def set_throttle(
        self, *, power_cap_ns: int = 0, thermal_ns: int = 0, sync_boost_ns: int = 0, power_cap_share: float = 0.0,
        thermal_share: float = 0.0, sync_boost_share: float = 0.0,
    ) -> None:  # fmt: skip
        """The cumulative throttle counters: where they stand now and what share of time they grow from now on."""
        shares = (power_cap_share, thermal_share, sync_boost_share)
        self._throttle = (time.monotonic(), power_cap_ns, thermal_ns, sync_boost_ns, *shares)
        self._changed()

    def set_limit(self, watts: float, default_w: float | None = None) -> None:
        """The enforced power limit."""
        self._limit_w = (watts, self._limit_w[1] if default_w is None else default_w)
        self._changed()

    def set_memory(self, total_bytes: int, used_bytes: int = 0) -> None:
        """Memory of the board and how much of it is taken."""
        self._memory = (total_bytes, used_bytes)
        self._changed()

    def set_memory_bus(self, clock_mhz: int, width_bits: int) -> None:
        """Highest memory clock and width of the bus: together the rated bandwidth."""
        self._bus = (clock_mhz, width_bits)
        self._changed()

    def set_architecture(self, number: int) -> None:
        """The generation as NVML counts it: 6 Turing, 7 Ampere, 8 Ada, 9 Hopper (at first), 10 Blackwell."""
        self._architecture = number
        self._changed()

    def set_processes(self, *pids: int) -> None:
        """The processes with a compute context."""
        self._pids = pids
        self._changed()

    def set_mig(self, *uuids: str) -> None:
        """Put the board into MIG mode with these MIG devices."""
        self._mig = uuids
        self._changed()

    def fail(self, symbol: str, code: int, *, after: int = 0, field: int = 0) -> None:
        """Let a function of the C library (``nvmlDeviceGetPowerUsage``) return an error code, after so many calls.

        With ``symbol`` ``"field"``, ``field`` says which field of ``nvmlDeviceGetFieldValues`` fails.
        """
        self._add(Rule(self.index, symbol, code, after, 0.0, field))

    def delay(self, symbol: str, seconds: float, *, after: int = 0) -> None:
        """Let a function of the C library take so long, after so many quick calls."""
        self._add(Rule(self.index, symbol, 0, after, seconds, 0))

    def heal(self) -> None:
        """Forget all that ``fail`` and ``delay`` arranged."""
        self._rules.clear()
        self._changed()

    def lines(self) -> Iterator[str]:
        """This GPU as the library reads it."""
        yield from (f"gpu.{self.index}.{line}" for line in self._facts())
        yield from (rule.line(serial) for serial, rule in self._rules.items())

    def _facts(self) -> Iterator[str]:
        yield from (f"uuid {self.uuid}", f"name {self.name}", f"bus_id {self.bus_id}")
        yield from (wave.line() for wave in self._waves)
        yield f"sensor {_words(*self._sensor)}"
        yield f"counter {_words(*self._counter)}"
        yield f"reasons {self._reasons}"
        yield f"limit {round(1000 * self._limit_w[0])} {round(1000 * self._limit_w[1])}"
        yield f"memory {_words(*self._memory)}"
        yield f"bus {_words(*self._bus)}"
        yield f"architecture {self._architecture}"
        yield from (f"pid {pid}" for pid in self._pids)
        yield f"mig_mode {int(self._mig is not None)}"
        yield from (f"mig {uuid}" for uuid in self._mig or ())
        yield f"throttle {_words(*self._throttle)}"

    def _set_counter(self, mode: str, joules: float) -> None:
        self._counter = (mode, joules, time.monotonic(), _NEVER)
        self._changed()

    def _add(self, rule: Rule) -> None:
        self._rules[next_serial()] = rule
        self._changed()

    def _integral_j(self, at_s: float) -> float:
        joules = 0.0
        ends = [*(wave.from_s for wave in self._waves[1:]), _NEVER]
        for index, (wave, until_s) in enumerate(zip(self._waves, ends, strict=True)):
            end_s = min(at_s, until_s)
            if index == 0 or end_s > wave.from_s:
                joules += wave.joules(end_s - wave.from_s)
        return joules


def _words(*values: object) -> str:
    return " ".join(str(value) for value in values)
