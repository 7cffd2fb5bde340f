"""A BMC's Redfish resources: fetched within a time budget, never from another host than the BMC."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pytest_tokenwatt.power.http import TIMEOUT_S, Access, HttpFailure, HttpReader, parse_object

Resource = Mapping[str, Any]
Keys = tuple[str | int, ...]
SERVICE_ROOT = "/redfish/v1"
_DEEPEST = 8


class Bmc:
    """Resources by path (``/redfish/v1/…``); ``url`` is any address of the BMC, with or without that path.

    ``begin`` starts a time budget, and forgets what was fetched before.
    """

    def __init__(self, url: str, access: Access) -> None:
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.host = parts.hostname or parts.netloc
        self._http = HttpReader(access)
        self._until_s = 0.0
        self._budget_s = 0.0
        self._fetched: dict[str, Resource | HttpFailure] = {}

    def begin(self, budget_s: float) -> None:
        """From now on, requests have ``budget_s`` seconds in all."""
        self._budget_s = budget_s
        self._until_s = time.monotonic() + budget_s
        self._fetched.clear()

    def get(self, path: str) -> Resource:
        """One resource. Raises ``HttpFailure``."""
        return self.get_all([path])[0]

    def get_all(self, paths: Sequence[str]) -> list[Resource]:
        """Several resources, fetched at the same time. Raises ``HttpFailure`` if one of them fails."""
        wanted = [path for path in dict.fromkeys(paths) if path not in self._fetched]
        if wanted:
            urls = [self._address(path) for path in wanted]
            for path, url, answer in zip(wanted, urls, self._http.get_all(urls, self._time_left()), strict=True):
                self._fetched[path] = answer if isinstance(answer, HttpFailure) else _parsed(url, answer)
        return [self._known(path) for path in paths]

    def members(self, path: str) -> list[str]:
        """Paths of a collection's members. Raises ``HttpFailure``."""
        return [found for member in listed(self.get(path), "Members") if (found := target(member)) is not None]

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _known(self, path: str) -> Resource:
        found = self._fetched[path]
        if isinstance(found, HttpFailure):
            raise found
        return found

    def _address(self, path: str) -> str:
        # An absolute address could lead the credentials to another host.
        if not path.startswith("/") or path.startswith("//"):
            raise HttpFailure(f"{self.origin} refers to {path[:80]!r}, which is no path on it", remedy="update the BMC")
        return f"{self.origin}{path}"

    def _time_left(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            what = f"{self.origin}: its power could not be found within {self._budget_s:g} s"
            raise HttpFailure(what, remedy="name the chassis in power.chassis, so that fewer resources are asked for")
        return min(TIMEOUT_S, left_s)


def _parsed(url: str, text: str) -> Resource | HttpFailure:
    try:
        return parse_object(url, text)
    except HttpFailure as failure:
        return failure


def target(reference: object) -> str | None:
    """The path that a reference (``{"@odata.id": …}``) leads to, without a fragment."""
    found = reference.get("@odata.id") if isinstance(reference, Mapping) else None
    path = found.split("#")[0].rstrip("/") if isinstance(found, str) else ""
    return path or None


def listed(resource: object, key: str) -> list[Resource]:
    """The objects in a list of a resource; none where there is no such list."""
    found = resource.get(key) if isinstance(resource, Mapping) else None
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def part(resource: object, key: str) -> Resource:
    """An object within a resource; empty where there is none."""
    found = resource.get(key) if isinstance(resource, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def name_of(path: str) -> str:
    """The last word of a path, by which members of a collection are called."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def walk(resource: object, way: Keys = ()) -> Iterator[Keys]:
    """The keys that lead to every value below a resource, to a depth that no real resource exceeds."""
    entries: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(resource, Mapping):
        entries = iter(resource.items())
    elif isinstance(resource, list):
        entries = iter(enumerate(resource))
    for key, value in entries:
        yield (*way, key)
        if len(way) < _DEEPEST:
            yield from walk(value, (*way, key))
