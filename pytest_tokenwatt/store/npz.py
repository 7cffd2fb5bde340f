"""Files of named columns (``.npz``): written whole, and refused in one line when they are damaged or something else.

No pickle is written and none is read. The column ``meta`` is JSON that names the file's schema.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.store.atomic import write_bytes
from pytest_tokenwatt.store.columns import Array, read_blob

T = TypeVar("T")

# A damaged zip may ask for a password or a method that is not there (RuntimeError), a damaged column for any size.
_NOT_OURS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_npz(path: Path, columns: Mapping[str, Array]) -> None:
    """Store the columns whole. Raises ``OSError``."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    write_bytes(path, buffer.getvalue())


def read_npz(path: Path, read: Callable[[Mapping[str, Array]], T], *, what: str, schema: str, remedy: str) -> T:
    """What ``read`` makes of the columns of a file of ``schema``; ``what`` names it in messages.

    Raises ``UsageError`` when the file is absent or damaged, of another schema, or ``read`` fails on what it holds.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as columns:
            found = read_blob(columns["meta"])["schema"]
            if found != schema:
                raise ValueError(f"its schema is {found!r}")
            return read(columns)
    except OSError as error:
        problem = f"the {what} cannot be read: {error.strerror or error}"
        raise UsageError(problem, where=str(path), remedy=remedy) from error
    except _NOT_OURS as error:
        problem = f"damaged, or no file of {schema}: {str(error) or type(error).__name__}"
        raise UsageError(problem, where=str(path), remedy=remedy) from error
