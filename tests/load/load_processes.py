"""What becomes of the load workers, which are this process's children."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep


def children() -> set[int]:
    """Process ids of this process's living children."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread of an earlier test may end between the listing and the reading.
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline_s = monotonic() + within_s
    while monotonic() < deadline_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        sleep(0.05)
    return False
