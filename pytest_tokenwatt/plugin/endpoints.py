"""``--tokenwatt-endpoint``: attach configurations to servers that run already."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.plugin.options import Settings
from pytest_tokenwatt.spec.model import Spec

_CREDENTIALS = re.compile(r"//.*@", re.DOTALL)
_KEYED = re.compile(r"([^:/=?]+)=(.+)", re.DOTALL)


def attach(specs: Sequence[Spec], settings: Settings) -> list[Spec]:
    """The specs with the endpoints of the command line. Raises ``UsageError`` when one cannot be assigned."""
    attached = list(specs)
    split = [(given, *_split(given, specs, settings)) for given in settings.endpoints]
    named = [key for _, key, _ in split]
    for given, key, url in split:
        if named.count(key) > 1:
            raise UsageError(f"{key} is given two endpoints", where=_where(given), remedy="keep one of them")
        holders = [number for number, spec in enumerate(attached) if key in _keys(spec)]
        if not holders:
            known = ", ".join(dict.fromkeys(key for spec in specs for key in _keys(spec)))
            raise UsageError(f"there is no configuration {key}", where=_where(given), remedy=f"configurations: {known}")
        for number in holders:
            for each in (key, *_repeats(attached[number], key, named)):
                attached[number] = _attached(attached[number], each, url, given)
    return attached


def _repeats(spec: Spec, key: str, named: Sequence[str]) -> list[str]:
    """Configurations that repeat ``key`` (``like``) do so on the same server, unless they are given their own."""
    return [config.key for config in spec.configurations if config.like == key and config.key not in named]


def _attached(spec: Spec, key: str, url: str, given: str) -> Spec:
    try:
        return spec.with_endpoint(key, url)
    except UsageError as error:
        raise UsageError(error.what, where=_where(given), remedy=error.remedy) from None


def _split(given: str, specs: Sequence[Spec], settings: Settings) -> tuple[str, str]:
    keyed = _KEYED.fullmatch(given)
    if keyed:
        return keyed[1], keyed[2]
    selected = [key for spec in specs for key in _keys(spec) if not settings.configs or key in settings.configs]
    if len(selected) != 1:
        what = f"a bare URL does not say which of {', '.join(selected)} it serves"
        raise UsageError(what, where=_where(given), remedy="write --tokenwatt-endpoint=KEY=URL")
    return selected[0], given


def _keys(spec: Spec) -> list[str]:
    return [config.key for config in spec.configurations]


def _where(given: str) -> str:
    # What is refused may hold a password, and CI logs are read by many.
    return f"--tokenwatt-endpoint={_CREDENTIALS.sub('//***@', given)}"
