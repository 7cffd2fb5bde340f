"""The NVIDIA driver, its GPUs, and who else uses them."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.commands.boards import Gpu, list_gpus
from pytest_tokenwatt.commands.doctor.check import Check

_IDLE_GIB = 1.0
"""A driver keeps some hundred MiB of every board for itself."""


def check_gpus() -> Iterator[Check]:
    """The driver; then of each GPU its power, its energy counter and the memory that is taken."""
    boards = list_gpus()
    if boards.trouble is not None:
        yield Check("NVML", "missing", f"no power and no memory of GPUs: {boards.trouble}")
        return
    if not boards.gpus and not boards.unreadable:
        remedy = "in a container, docker run --gpus all"
        yield Check("NVML", "missing", "the driver answers and lists no GPU", remedy)
        return
    driver = next((gpu.driver for gpu in boards.gpus if gpu.driver), None)
    yield Check("NVML", "ok", f"{len(boards.gpus)} GPUs, driver {driver or 'unknown'}")
    for told in boards.unreadable:
        yield Check("NVML", "warning", told, "see nvidia-smi and dmesg")
    for place, gpu in enumerate(boards.gpus):
        yield from _gpu(f"GPU {place}", gpu)


def _gpu(subject: str, gpu: Gpu) -> Iterator[Check]:
    told = f"{gpu}, {gpu.uuid}"
    if gpu.power_w is None:
        yield Check(subject, "warning", f"{told}: it does not tell its power", "measure it by dcgm or redfish")
    elif not gpu.counts_energy:
        told = f"{told}: without an energy counter; energy is the integral of sampled power"
        yield Check(subject, "warning", told, "sample at 5 Hz or more (power.sampling_hz)")
    else:
        yield Check(subject, "ok", told)
    if gpu.used_gib is None:
        yield Check(f"{subject} memory", "warning", "the driver does not tell how much is in use", "see nvidia-smi")
    elif gpu.pids or gpu.used_gib > _IDLE_GIB:
        users = f" by process {', '.join(map(str, sorted(gpu.pids)))}" if gpu.pids else ""
        remedy = "end it before a run, unless it is the server under test"
        yield Check(f"{subject} memory", "warning", f"{gpu.used_gib:.1f} GiB are in use{users}", remedy)
    else:
        yield Check(f"{subject} memory", "ok", f"{gpu.used_gib:.1f} GiB in use, by nobody")
