"""Keeps secrets out of everything that is shown: log tails, error messages, launch records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MASK = "***"

_TELLING = re.compile(r"(?i)(api_?key|token|secret|passw(or)?d|credential|authorization)")
_HARMLESS = re.compile(r"(?i)(max|num|n|batched|new|output|input|total|special|stop)_?tokens?|tokeniz|tokenwatt")
# Shorter ones would mask half of every text, and are no secrets.
_SHORTEST_NAMED, _SHORTEST = 3, 6


def is_telling(name: str) -> bool:
    """Whether a variable, option or field of this name is likely to hold a secret."""
    plain = name.replace("-", "_")
    return bool(_TELLING.search(_HARMLESS.sub("", plain)))


class Scrubber:
    """Masks the values of the variables that a spec names as secrets, and of those whose names tell that they are."""

    def __init__(self, environ: Mapping[str, str], secret_variables: Iterable[str] = ()) -> None:
        named = {value for name in secret_variables if len(value := environ.get(name, "").strip()) >= _SHORTEST_NAMED}
        telling = {value for name, value in environ.items() if is_telling(name) and len(value) >= _SHORTEST}
        # Longest first, so that a secret that contains another one is masked whole.
        self._values = sorted({value for value in named | telling if value.strip()}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """``text`` with every known secret masked."""
        for value in self._values:
            text = text.replace(value, MASK)
        return text

    def mapping(self, values: Mapping[str, str]) -> dict[str, str]:
        """A mapping whose telling names are masked and whose other values are scrubbed."""
        return {name: MASK if is_telling(name) else self(value) for name, value in values.items()}
