"""The summary of a GitHub Actions step: a file that several programs append to, not shown at all if it is too long."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1024 * 1024
"""What GitHub takes of one step; a longer file is not shown at all."""
MARGIN_BYTES = 4096
"""Kept free for what others append later."""
LEFT_OUT = "*The summary of this step is nearly full: the rest is left out here and stands in the lab report.*"
_FOLDED = ("<details", "```", "~~~")


def append(path: str, markdown: str) -> str | None:
    """Append ``markdown`` to the file at ``path``, or as much of its head as the file has room for.

    Returns ``None``, or one line that says what could not be written. Raises nothing: a verdict does not depend on a
    summary.
    """
    try:
        return _append(Path(path), markdown)
    except (OSError, ValueError) as error:
        return f"step summary {path!r}: {' '.join(str(error).split())}; it is left as it is"


def _append(path: Path, markdown: str) -> str | None:
    if path.exists() and not path.is_file():
        return f"step summary {str(path)!r}: not a regular file; nothing was written"
    with path.open("ab") as file:
        size = file.seek(0, 2)
        before = b"\n\n" if size else b""
        content = _fitting(markdown, MOST_BYTES - MARGIN_BYTES - size - len(before))
        if not content:
            return f"step summary {str(path)!r}: full with {size} bytes; nothing was written"
        file.write(before + content)
    return None


def _fitting(markdown: str, room: int) -> bytes:
    """All of it, or the paragraphs at its head that fit and open nothing, with a line that says so; else nothing."""
    whole = _bytes(markdown.rstrip("\n"))
    if len(whole) <= room:
        return whole
    head = b""
    for paragraph in markdown.split("\n\n"):
        longer = head + _bytes(paragraph)
        if paragraph.lstrip().startswith(_FOLDED) or len(longer) + len(_bytes(LEFT_OUT)) > room:
            break
        head = longer
    return head + _bytes(LEFT_OUT) if head else b""


def _bytes(text: str) -> bytes:
    return f"{text}\n\n".encode("utf-8", "replace")
