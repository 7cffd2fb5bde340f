"""What a power source needs to be read, and what it would not look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytest_tokenwatt.spec.serving import PowerSource

_USED = {
    "board": (),
    "redfish": ("url", "username", "password_env", "ca_file", "chassis"),
    "dcgm": ("url", "urls", "match", "username", "password_env", "ca_file"),
    "ipmi": ("host", "username", "password_env"),
    "command": ("command", "field"),
    "rapl": (),
    "simulated": (),
    "none": (),
}
_ALL = ("url", "urls", "match", "username", "password_env", "ca_file", "chassis", "host", "command", "field")
_IPMI_TOOLS = ("ipmitool", "ipmi-dcmi")


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A finding about one source: the key that it concerns (``None``: the source itself) and the remedy."""

    key: str | None
    what: str
    remedy: str
    severity: str = "error"


def source_problems(source: PowerSource, path: str) -> Iterator[SourceProblem]:
    """Everything that the spec alone tells; ``path`` is the PATH on which programs are looked up."""
    yield from _missing(source)
    yield from _credentials(source)
    if source.source == "ipmi" and not any(shutil.which(tool, path=path) for tool in _IPMI_TOOLS):
        what = f"neither {' nor '.join(_IPMI_TOOLS)} is on PATH, so that no power can be read"
        yield SourceProblem(None, what, "install ipmitool", severity="warning")
    for key in _ALL:
        if key not in _USED[source.source] and getattr(source, key):
            what = f"source {source.source} does not look at it"
            yield SourceProblem(key, what, "remove it, or name the source that it is meant for", severity="warning")


def _missing(source: PowerSource) -> Iterator[SourceProblem]:
    if source.source == "redfish" and source.url is None:
        yield SourceProblem("url", "source redfish needs the address of a BMC", "add url: https://…")
    if source.source == "dcgm" and source.url is None and not source.urls:
        yield SourceProblem("urls", "source dcgm needs the exporter's address", "add urls: [http://…:9400/metrics]")
    if source.source == "command" and source.command is None:
        yield SourceProblem("command", "source command needs one that prints watts", "add command: [program, …]")


def _credentials(source: PowerSource) -> Iterator[SourceProblem]:
    if source.username and source.password_env is None:
        yield SourceProblem("username", "there is no password for it", "name its variable in password_env")
    if source.password_env is not None and not source.username:
        yield SourceProblem("password_env", "there is no user for it", "add username")
    address = urlsplit(source.url or "")
    if source.username and address.scheme == "http" and address.hostname not in ("127.0.0.1", "::1", "localhost"):
        yield SourceProblem("url", "the password would cross the network unencrypted", "use https", severity="warning")
