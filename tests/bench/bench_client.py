"""How far the load client can be trusted: its figures against a server of known timing, rate by rate.

    python tests/bench/bench_client.py [--rates 100 300 500 700] [--tokens 100] [--seconds 10] [--text]

The server runs on one CPU and the client (one worker) on another; compare the errors with the server's own lateness.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time_ns

from known_timing import KnownTiming, compile_server, running

from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.load.lengths import Fixed
from pytest_tokenwatt.load.plan import build_plan
from pytest_tokenwatt.load.traces import Traffic
from pytest_tokenwatt.records import (
    CONTINUE,
    Decision,
    InFlight,
    LoadRun,
    RequestProgress,
    RequestRecord,
    Target,
    WindowSpan,
    WorkerTrace,
)

WARMUP_S = 3.0
TIMEOUT_S = 30.0


class UntilTheEnd:
    """A watch that stops once every request of the window has ended, or some seconds later."""

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        """The warm-up takes its full length, which is its maximum."""
        return now_s > 0 and bool(in_flight)

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        """Stop when nothing of the window runs any more."""
        end_s = spans[-1].end_s
        open_ones = any(not request.ended for request in requests if request.scheduled_s < end_s)
        if now_s < end_s or (open_ones and now_s < end_s + 10):
            return CONTINUE
        return Decision(stop=True, why="done", abort=True)


@dataclass(frozen=True, slots=True)
class Row:
    """What the client made of one rate; times in ms, errors against the server's schedule."""

    rate_rps: float
    offered: int
    finished: int
    sent: int
    ttft_p50_error: float
    ttft_p99_error: float
    send_p99_error: float
    tpot_error_pct: float
    lag_p99: float
    cpu_share: float
    server_late_p99: float


def measure(
    server: KnownTiming, rate_rps: float, tokens: int, seconds: float, log: Path, warmup_s: float = WARMUP_S
) -> LoadRun:
    """One window at one rate."""
    plan = build_plan(
        label=f"{rate_rps:g}", rate_rps=rate_rps, traffic=Traffic("bench", Fixed(64), Fixed(tokens)), windows=1,
        window_s=seconds, warmup_s=warmup_s, warmup_max_s=warmup_s, request_timeout_s=TIMEOUT_S,
        max_concurrency=1_000_000, seed=1, purpose="bench", salt=time_ns(),
    )  # fmt: skip
    target = Target(f"http://127.0.0.1:{server.port}/v1", "known", vocab_size=30_000)
    with LoadGenerator(target, 1, lambda: None, log) as generator:
        return generator.run(plan, UntilTheEnd())


def row(run: LoadRun, server: KnownTiming) -> Row:
    """The window's figures."""
    span = run.spans[0]
    offered = [r for r in run.requests if r.phase == "measured" and r.scheduled_s < span.end_s]
    finished = [r for r in offered if r.ok]
    sent = [r for r in offered if r.sent_s is not None]
    return Row(
        rate_rps=run.plan.rate_rps,
        offered=len(offered),
        finished=len(finished),
        sent=len(sent),
        ttft_p50_error=nearest_rank([ttft_ms(r, r.scheduled_s) for r in finished], 0.50) - server.ttft_ms,
        ttft_p99_error=nearest_rank([ttft_ms(r, r.scheduled_s) for r in finished], 0.99) - server.ttft_ms,
        send_p99_error=nearest_rank([ttft_ms(r, r.sent_s) for r in finished], 0.99) - server.ttft_ms,
        tpot_error_pct=100 * (mean([tpot_ms(r) for r in finished]) / server.itl_ms - 1),
        lag_p99=nearest_rank([1000 * (r.sent_s - r.scheduled_s) for r in sent if r.sent_s is not None], 0.99),
        cpu_share=max(cpu_share(trace, span) for trace in run.workers),
        server_late_p99=server.lateness.get("late_first_p99_ms", math.nan),
    )


def ttft_ms(record: RequestRecord, since_s: float | None) -> float:
    """Time to the first token."""
    if record.first_token_s is None or since_s is None:
        return math.inf
    return 1000 * (record.first_token_s - since_s)


def tpot_ms(record: RequestRecord) -> float:
    """Time per output token behind the first chunk."""
    if record.first_token_s is None or record.last_token_s is None:
        return math.inf
    later = sum(record.chunk_tokens) - record.chunk_tokens[0]
    return 1000 * (record.last_token_s - record.first_token_s) / later if later else math.nan


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The percentile by nearest rank; NaN of nothing."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def cpu_share(trace: WorkerTrace, span: WindowSpan) -> float:
    """CPU seconds per second of a worker within the window."""
    inside = [(at, cpu) for at, cpu in zip(trace.at_s, trace.cpu_s, strict=True) if span.start_s <= at <= span.end_s]
    if len(inside) < 2:
        return math.nan
    (first_s, first_cpu), (last_s, last_cpu) = inside[0], inside[-1]
    return (last_cpu - first_cpu) / (last_s - first_s)


COLUMNS = (
    ("req/s", "{0.rate_rps:g}"),
    ("offered", "{0.offered}"),
    ("sent", "{0.sent}"),
    ("finished", "{0.finished}"),
    ("TTFT p50 error", "{0.ttft_p50_error:+.2f}"),
    ("TTFT p99 error", "{0.ttft_p99_error:+.2f}"),
    ("p99 from send", "{0.send_p99_error:+.2f}"),
    ("TPOT error %", "{0.tpot_error_pct:+.3f}"),
    ("lag p99", "{0.lag_p99:.2f}"),
    ("CPU share", "{0.cpu_share:.2f}"),
    ("server late p99", "{0.server_late_p99:.1f}"),
)


def table(rows: Sequence[Row]) -> str:
    """The rows under their headings."""
    cells = [[heading for heading, _ in COLUMNS], *([form.format(each) for _, form in COLUMNS] for each in rows)]
    return "\n".join("  ".join(cell.rjust(len(COLUMNS[k][0])) for k, cell in enumerate(line)) for line in cells)


def separate_cpus() -> tuple[int | None, int | None]:
    """A CPU for the server and one for the client, if there are two; this process moves to the client's."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return None, None
    os.sched_setaffinity(0, {usable[-1]})
    return usable[0], usable[-1]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[100, 300, 500, 700], help="requests per second")
    parser.add_argument("--tokens", type=int, default=100, help="tokens of each answer")
    parser.add_argument("--seconds", type=float, default=10, help="length of each window")
    parser.add_argument("--ttft", type=float, default=50, help="the server's time to first token, ms")
    parser.add_argument("--itl", type=float, default=10, help="the server's time between tokens, ms")
    parser.add_argument("--text", action="store_true", help="events without token ids and usage")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when there is no compiler."""
    options = parse(arguments)
    server_cpu, _ = separate_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            binary = compile_server(Path(scratch))
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        rows = []
        for rate in options.rates:
            with running(binary, options.ttft, options.itl, ids=not options.text, cpu=server_cpu) as server:
                run = measure(server, rate, options.tokens, options.seconds, Path(scratch) / "load.log")
            rows.append(row(run, server))
    print(
        f"TTFT {options.ttft:g} ms, ITL {options.itl:g} ms, {options.tokens} tokens, {options.seconds:g} s; times in ms"
    )
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
