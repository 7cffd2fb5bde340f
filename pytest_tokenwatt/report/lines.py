"""Lines of what a run did not see, those that differ only in names drawn together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def grouped(what: str, lacking: Mapping[str, Mapping[str, str]], everyone: int) -> Iterator[str]:
    """One line for each reason; ``lacking`` has by configuration the names of what it lacks, each with its reason.

    Configurations are named unless ``everyone`` of them lacks the same.
    """
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for key, reasons in lacking.items():
        for reason in dict.fromkeys(reasons.values()):
            names = tuple(name for name, why in reasons.items() if why == reason)
            lines.setdefault((reason, names), []).append(key)
    for (reason, names), keys in lines.items():
        line = f"{what} ({', '.join(names)}): {reason}"
        yield line if len(keys) == everyone else f"{', '.join(keys)}: {line}"
