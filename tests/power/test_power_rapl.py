"""RAPL: which domains count, wraps of their counters, and what stands in the way."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from source_contexts import context, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.rapl import RaplSource

RANGE_UJ = 262_143_328_850


def domain(root: Path, folder: str, name: str, energy_uj: int = 1_000_000) -> None:
    (root / folder).mkdir(parents=True)
    (root / folder / "name").write_text(f"{name}\n")
    (root / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    spend(root, folder, energy_uj)


def spend(root: Path, folder: str, energy_uj: int) -> None:
    (root / folder / "energy_uj").write_text(f"{energy_uj}\n")


def source(root: Path) -> RaplSource:
    return RaplSource(settings("rapl"), context(root), root=root)


def test_packages_and_their_memory_count_once(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0")
    domain(tmp_path, "intel-rapl:0:0", "core")
    domain(tmp_path, "intel-rapl:0:1", "dram")
    domain(tmp_path, "intel-rapl:1", "package-1")
    domain(tmp_path, "intel-rapl:2", "psys")
    domain(tmp_path, "intel-rapl:2:0", "dram")
    domain(tmp_path, "intel-rapl-mmio:0", "package-0")
    rapl = source(tmp_path)
    assert [info.sensor for info in rapl.open()] == ["package-0", "package-1", "package-0/dram"]
    assert "package-0, package-1, package-0/dram" in rapl.chosen


def test_watts_are_the_mean_since_the_last_reading(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0")
    rapl = source(tmp_path)
    rapl.open()
    before_s = time.monotonic()
    time.sleep(0.05)
    spend(tmp_path, "intel-rapl:0", 6_000_000)
    rapl.read_counters()
    (reading,) = rapl.read()
    assert reading.watts is not None
    assert 5.0 / (time.monotonic() - before_s + 0.05) <= reading.watts <= 5.0 / 0.05
    time.sleep(0.01)
    (still,) = rapl.read()
    assert still.watts is None
    assert "no reading of power" in str(still.problem)


def test_the_counter_goes_on_where_the_kernels_wraps(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 2_000_000)
    rapl = source(tmp_path)
    rapl.open()
    before_j = rapl.read_counters()["package-0"]
    time.sleep(0.01)
    spend(tmp_path, "intel-rapl:0", 3_000_000)
    assert rapl.read_counters()["package-0"] - before_j == pytest.approx(5.0)


def test_a_reset_is_no_wrap(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", 50_000_000)
    rapl = source(tmp_path)
    rapl.open()
    time.sleep(0.01)
    spend(tmp_path, "intel-rapl:0", 1_000_000)
    (reading,) = rapl.read()
    assert reading.watts is None
    assert reading.problem is not None
    assert reading.problem.code == "energy_counter_reset"
    assert rapl.read_counters()["package-0"] == 1.0


def test_a_machine_without_rapl(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="there is no RAPL package") as caught:
        source(tmp_path / "absent").open()
    assert caught.value.reason == "no_power_source"
    assert caught.value.remedy


@pytest.mark.parametrize("content", ["", "many"])
def test_a_counter_without_a_number(tmp_path: Path, content: str) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0")
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text(content)
    with pytest.raises(PowerError, match="holds no count"):
        source(tmp_path).open()


def test_a_counter_that_only_root_may_read() -> None:
    # A folder that others may enter, unlike pytest's own.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        domain(root, "intel-rapl:0", "package-0")
        (root / "intel-rapl:0" / "energy_uj").chmod(0)
        rapl = source(root)
        with without_privileges(), pytest.raises(PowerError, match="may not be read; run as root") as caught:
            rapl.open()
    assert caught.value.reason == "no_power_source"


@contextmanager
def without_privileges() -> Iterator[None]:
    """As nobody, where the tests run as root, whom no mode keeps out."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
