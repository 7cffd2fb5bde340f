"""Bytes of the tensors in a file that ``torch.save`` wrote, from the table of contents of its archive."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from pytest_tokenwatt.geometry.safetensors_header import HeaderUnreadable

_STORAGE = "/data/"


def archived_bytes(file: Path) -> int:
    """Bytes of all storages; nothing is unpickled. Raises ``HeaderUnreadable``."""
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = [entry.file_size for entry in archive.infolist() if _STORAGE in entry.filename]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, OverflowError) as error:
        raise HeaderUnreadable(f"{file} is no whole archive of torch.save: {error}") from None
    if not sizes:
        raise HeaderUnreadable(f"{file} is an archive without tensors")
    return sum(sizes)
