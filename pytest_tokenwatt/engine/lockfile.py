"""Lock files: held by an open descriptor, so that the kernel drops the lock with the last process that has it.

Standard library only: the guard process, which inherits the descriptor, runs this module too.
"""

from __future__ import annotations

import os
from pathlib import Path


def take(path: Path) -> int | None:
    """A descriptor that holds the lock of this file, or ``None`` when somebody else does."""
    import fcntl  # not on Windows, where engines are only attached to

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The file may have been removed, by the run that held it, between our opening and our locking it.
        if _is_file_of(path, descriptor):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def drop(path: Path, descriptor: int) -> None:
    """Remove the file, if it is still the one that the descriptor locks, and close the descriptor."""
    if _is_file_of(path, descriptor):
        path.unlink(missing_ok=True)
    os.close(descriptor)


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except OSError:
        return False
