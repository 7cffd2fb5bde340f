"""What load and timing need of the machine: cores, scheduling, file limits, ports, disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from pytest_tokenwatt.commands.doctor.check import Check
from pytest_tokenwatt.engine.ports import claim_free_port
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.load.urgency import run_when_due
from pytest_tokenwatt.spec.traffic import Measurement

_FEW_CORES = 4
_GIB = 2**30
_LITTLE_DISK_GIB = 5.0
_SPARE_FILES = 256
_FEW_PORTS = 16_384
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check_machine(folder: Path) -> Iterator[Check]:
    """Cores, real-time scheduling, open files, ports, and the disk below ``folder``, where runs are written."""
    yield _cores()
    yield _real_time()
    yield _files()
    yield from _ports()
    yield _disk("disk", folder)
    yield _disk("temporary files", Path(tempfile.gettempdir()))


def _cores() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_cores()
    usable = count if quota is None else min(count, quota)
    told = f"{count} core{'s' * (count != 1)}" + (f", limited to the time of {quota:g}" if quota is not None else "")
    if usable < _FEW_CORES:
        remedy = "the load generator wants one that the engine leaves alone: pin the engine with taskset"
        return Check("cores", "warning", told, remedy)
    return Check("cores", "ok", told)


def _quota_cores() -> float | None:
    """The processor time that a container may use, in cores."""
    try:
        quota, period = _QUOTA.read_text().split()
        return None if quota == "max" else round(int(quota) / int(period), 2)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _real_time() -> Check:
    """Tried in a thread of its own: the scheduling class belongs to the thread, and ends with it."""
    granted: list[bool] = []
    trial = threading.Thread(target=lambda: granted.append(run_when_due()), name="tokenwatt-real-time")
    trial.start()
    trial.join()
    if granted == [True]:
        return Check("real time", "ok", "the load generator may run as soon as a request is due")
    remedy = "run as root, allow it by ulimit -r, or docker run --cap-add SYS_NICE"
    told = "not permitted: on a busy machine requests leave late, which is measured and may make a window invalid"
    return Check("real time", "warning", told, remedy)


def _files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("open files", "ok", "not limited here")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = Measurement().max_concurrency + _SPARE_FILES
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return Check("open files", "ok", "unlimited" if hard == resource.RLIM_INFINITY else f"up to {hard}")
    remedy = f"raise the hard limit (ulimit -Hn, docker run --ulimit nofile={needed}), or lower max_concurrency"
    return Check("open files", "warning", f"at most {hard} where {needed} may be needed at once", remedy)


def _ports() -> Iterator[Check]:
    try:
        claim = claim_free_port()
    except (EngineError, OSError) as error:
        yield Check("ports", "missing", f"no port can be claimed: {error}", "free the temporary directory", needed=True)
        return
    claim.release()
    try:
        low, high = (int(word) for word in _RANGE.read_text().split())
    except (OSError, ValueError):
        yield Check("ports", "ok", f"such as {claim.port}")
        return
    if high - low < _FEW_PORTS:
        remedy = 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"'
        yield Check("ports", "warning", f"only {high - low + 1} for outgoing connections", remedy)
    else:
        yield Check("ports", "ok", f"free ones such as {claim.port}, {high - low + 1} for outgoing connections")


def _disk(subject: str, folder: Path) -> Check:
    if not os.access(folder, os.W_OK | os.X_OK):
        remedy = "run where you may write, or give --tokenwatt-out" if subject == "disk" else "set TMPDIR"
        return Check(subject, "missing", f"{folder} is not writable", remedy, needed=True)
    try:
        free_gib = shutil.disk_usage(folder).free / _GIB
    except OSError as error:
        return Check(subject, "warning", f"{folder}: free space is not known ({error.strerror})")
    if free_gib < _LITTLE_DISK_GIB:
        return Check(subject, "warning", f"{free_gib:.1f} GiB free in {folder}", "free some: a run may write gigabytes")
    return Check(subject, "ok", f"{free_gib:.0f} GiB free in {folder}")
