"""A fake NVIDIA driver for tests: a C library behind the real Python binding, so that the binding is tested, too."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_tokenwatt.testing.fake_gpu import FakeGpu, Rule, next_serial

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_LIBRARY = "libnvidia-ml.so.1"


class FakeNvml:
    """The driver of a machine with the GPUs that ``add_gpu`` put there; none at first."""

    def __init__(self, library: ctypes.CDLL, state_file: Path) -> None:
        self._library = library
        self.gpus: list[FakeGpu] = []
        self._state_file = state_file
        self._driver = "570.86.15"
        self._rules: dict[int, Rule] = {}
        self._write()

    def add_gpu(
        self, uuid: str | None = None, name: str = "NVIDIA H100 80GB HBM3", bus_id: str | None = None
    ) -> FakeGpu:
        """One more GPU, last in the driver's order; an H100 that draws 300 W until something else is said."""
        index = len(self.gpus)
        uuid = uuid or f"GPU-{index:08x}-0000-4000-8000-{index:012x}"
        gpu = FakeGpu(index, uuid, name, bus_id or f"00000000:{0x10 + index:02X}:00.0", self._write)
        self.gpus.append(gpu)
        self._write()
        return gpu

    def set_driver(self, version: str) -> None:
        """The driver's version."""
        self._driver = version
        self._write()

    def fail_init(self, code: int) -> None:
        """Refuse to start, as with 12 (no library), 9 (not loaded) or 18 (version mismatch)."""
        self.fail("nvmlInitWithFlags", code)

    def fail(self, symbol: str, code: int, *, after: int = 0) -> None:
        """Let a function of the C library fail for every GPU, after so many calls; 13 is a function that is missing."""
        self._rules[next_serial()] = Rule(-1, symbol, code, after, 0.0, 0)
        self._write()

    def users(self) -> int:
        """How many initialisations have not been shut down yet."""
        return int(self._library.tokenwatt_fake_nvml_users())

    def _write(self) -> None:
        lines = [f"driver {self._driver}"]
        lines.extend(rule.line(serial) for serial, rule in self._rules.items())
        for gpu in self.gpus:
            lines.extend(gpu.lines())
        sibling = self._state_file.with_suffix(".new")
        sibling.write_text("\n".join(lines) + "\n", encoding="utf-8")
        sibling.replace(self._state_file)


def why_no_fake_nvml() -> str | None:
    """Why the library cannot be built here; ``None`` when it can."""
    if not sys.platform.startswith("linux"):
        return "the fake NVML library is for Linux"
    return None if _compiler() else "the fake NVML library needs a C compiler (gcc or clang)"


def compile_fake_nvml(folder: Path) -> Path:
    """Build the library in ``folder``; its path. Raises ``CalledProcessError`` or ``FileNotFoundError``."""
    compiler = _compiler()
    if compiler is None:
        raise FileNotFoundError("no C compiler: install gcc or clang")
    library = folder / _LIBRARY
    options = ["-O2", "-shared", "-fPIC", f"-Wl,-soname,{_LIBRARY}", "-o", str(library)]
    subprocess.run([compiler, *options, str(_SOURCE), "-lm", "-lpthread"], check=True)
    return library


@contextmanager
def running_fake_nvml(library: Path, state_file: Path) -> Iterator[FakeNvml]:
    """Let this process's NVML binding use the library; what it used before comes back at the end.

    The library is loaded by its path and no environment variable names it: processes started meanwhile, such as an
    engine, keep the machine's own driver.
    """
    binding = importlib.import_module("pynvml")
    loaded = ctypes.CDLL(str(library))
    fake = FakeNvml(loaded, state_file)
    before = binding.nvmlLib
    loaded.tokenwatt_fake_nvml(str(state_file).encode())
    _use(binding, loaded)
    try:
        yield fake
    finally:
        _use(binding, before)
        loaded.tokenwatt_fake_nvml(b"")


def _use(binding: object, library: object) -> None:
    # The binding keeps the functions that it has looked up; those of another library must not be called.
    vars(binding)["_nvmlGetFunctionPointer_cache"].clear()
    vars(binding)["nvmlLib"] = library


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library, compiled once a session; skips where it cannot be."""
    reason = why_no_fake_nvml()
    if reason is not None:
        pytest.skip(reason)
    return compile_fake_nvml(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture
def fake_nvml(fake_nvml_library: Path, tmp_path: Path) -> Iterator[FakeNvml]:
    """A fake NVIDIA driver in this process, without GPUs at first; skips where there is no C compiler."""
    with running_fake_nvml(fake_nvml_library, tmp_path / "fake-nvml.state") as fake:
        yield fake
