"""The two programs that read DCMI power: how they are called and what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.programs import Outcome
from pytest_tokenwatt.power.watts import READ_FAILED

IPMITOOL = "ipmitool"
FREEIPMI = "ipmi-dcmi"

_WATTS = re.compile(r"(?:Instantaneous power reading|Current Power)\s*:\s*(\S+)\s+watts", re.IGNORECASE)
_INACTIVE = re.compile(
    r"(?:Power reading state is|Power Measurement)\s*:\s*(?:deactivated|not a\w+)|not activated|present state",
    re.IGNORECASE,
)
_MONITORING = "switch power monitoring on in the BMC; some machines need a power meter or a licence for it"


@dataclass(frozen=True, slots=True)
class _Sign:
    pattern: re.Pattern[str]
    what: str
    remedy: str


def _sign(pattern: str, what: str, remedy: str) -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE), what, remedy)


# In this order: a message about the device also says why it could not be opened.
_SIGNS = (
    _sign(
        r"permission denied|operation not permitted|must be root",
        "this user may not open /dev/ipmi0",
        "run as root, let a udev rule give the user access, or reach the BMC with power.host",
    ),
    _sign(
        r"could not open device|could not find inband device|no such file|driver.*(not found|unavailable)",
        "this machine has no IPMI device",
        "load the modules (modprobe ipmi_si ipmi_devintf), or reach the BMC with power.host",
    ),
    _sign(
        r"rakp|unauthorized|password.*(invalid|incorrect)|username invalid|privilege level",
        "the BMC refused the user or the password",
        "check power.username and the variable that power.password_env names",
    ),
    _sign(
        r"unable to establish|timeout|timed out|could not resolve|address lookup",
        "there is no session with the BMC",
        "check power.host, the user and the password, and that IPMI over LAN is on",
    ),
    _sign(
        r"dcmi request failed|invalid command|not supported|not available",
        "the BMC does not offer DCMI power readings",
        "use power: {source: redfish}, or {source: command}",
    ),
)


def arguments(tool: str, host: str | None, username: str | None, config: str | None) -> list[str]:
    """What follows the program's name; reading power needs the privilege USER only.

    The password is no part of it: ipmitool takes it from its environment, ipmi-dcmi from the file ``config``.
    """
    if tool == IPMITOOL:
        remote = ["-I", "lanplus", "-H", host, "-L", "USER", "-N", "1", "-R", "2", "-E"] if host else []
        user = ["-U", username] if host and username else []
        return [*remote, *user, "dcmi", "power", "reading"]
    remote = ["-D", "LAN_2_0", "-h", host, "-l", "USER"] if host else []
    user = ["-u", username] if host and username else []
    return [*remote, *user, *(["--config-file", config] if config else []), "--get-system-power-statistics"]


def told_watts(tool: str, done: Outcome) -> str:
    """The watts as they were printed, which may be zero or no number.

    Raises ``PowerError`` (``read_failed``). What the program printed is matched and never quoted.
    """
    everything = f"{done.stdout}\n{done.stderr}"
    if _INACTIVE.search(everything):
        raise PowerError(READ_FAILED, f"{tool}: the power reading is not activated", remedy=_MONITORING)
    found = _WATTS.search(done.stdout)
    # ipmitool ends with 0 when the BMC refused the request.
    if found is not None and done.status == 0:
        return found[1]
    sign = next((sign for sign in _SIGNS if sign.pattern.search(everything)), None)
    if sign is not None:
        raise PowerError(READ_FAILED, f"{tool}: {sign.what}", remedy=sign.remedy)
    ended = f"failed (exit status {done.status})" if done.status else "printed no power reading"
    raise PowerError(READ_FAILED, f"{tool} {ended}", remedy="run it by hand to see why")


def config_text(secret: str) -> str:
    """A file of FreeIPMI's that holds the password (freeipmi.conf(5)).

    Raises ``PowerError`` (``no_power_source``) for one that cannot be written there.
    """
    if re.search(r'["\\\n]', secret):
        what = f"the password has characters that {FREEIPMI} cannot take from a file"
        raise PowerError("no_power_source", what, remedy=f"install {IPMITOOL}")
    return f'password "{secret}"\n'
