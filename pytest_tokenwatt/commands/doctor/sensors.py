"""Power sensors beside the GPUs: may this user read them?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_tokenwatt.commands.doctor.check import Check
from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.ipmi_tools import FREEIPMI, IPMITOOL
from pytest_tokenwatt.power.rapl import ROOT, RaplSource
from pytest_tokenwatt.power.sources import SourceContext
from pytest_tokenwatt.spec.serving import PowerSource

_IPMI_DEVICES = (Path("/dev/ipmi0"), Path("/dev/ipmi/0"), Path("/dev/ipmidev/0"))


def check_sensors(
    environ: Mapping[str, str], rapl: Path = ROOT, ipmi: tuple[Path, ...] = _IPMI_DEVICES
) -> Iterator[Check]:
    """RAPL by reading it; IPMI by its device and its program, which is not run."""
    yield _rapl(rapl)
    yield _ipmi(environ, ipmi)


def _rapl(root: Path) -> Check:
    nothing = GpuQuery(listed=None, expected=0, environ={}, pids=lambda: None)
    context = SourceContext(environ={}, spec_dir=Path.cwd(), endpoint_root="", simulated=False, gpus=nothing)
    source = RaplSource(PowerSource(source="rapl"), context, root)
    try:
        domains = source.open()
    except PowerError as error:
        return Check("RAPL", "missing", f"no power of processors: {error.what}", error.remedy)
    finally:
        source.close()
    return Check("RAPL", "ok", ", ".join(domain.sensor for domain in domains))


def _ipmi(environ: Mapping[str, str], devices: tuple[Path, ...]) -> Check:
    folders = environ.get("PATH", os.defpath)
    tool = next((name for name in (IPMITOOL, FREEIPMI) if shutil.which(name, path=folders)), None)
    device = next((path for path in devices if path.exists()), None)
    if tool is None:
        return Check("IPMI", "missing", "no power of the node: no ipmitool", f"install {IPMITOOL} or freeipmi")
    if device is None:
        remedy = "load the modules ipmi_si and ipmi_devintf, or reach the BMC with power.host"
        return Check("IPMI", "missing", f"{tool} is here, and this machine has no IPMI device", remedy)
    if not os.access(device, os.R_OK | os.W_OK):
        remedy = "run as root, let a udev rule give the user access, or reach the BMC with power.host"
        return Check("IPMI", "missing", f"this user may not open {device}", remedy)
    return Check("IPMI", "ok", f"{tool}, {device}")
