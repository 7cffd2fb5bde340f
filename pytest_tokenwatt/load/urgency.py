"""A load worker's place in the scheduler's queue."""

from __future__ import annotations

import os


def run_when_due() -> bool:
    """Ask that this process runs as soon as it has something to do; returns whether that was granted.

    Where an engine keeps all cores busy, the ordinary scheduler lets a client that works for two per cent of the time
    wait for up to a second: every stamp is late, and the engine looks slow. A worker sleeps until a request is due or
    data arrives and uses less than a core (more makes its windows invalid), so that it may go first. Needs a right
    that root has and containers often take away; without it the lateness is measured and judged as ever.
    """
    if not hasattr(os, "SCHED_RR"):
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return False
    return True
