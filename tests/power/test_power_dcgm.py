"""dcgm-exporter: which of its GPUs are under test, and what their series say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_contexts import Pages, context, serving, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.dcgm import DcgmSource
from pytest_tokenwatt.power.dcgm_series import Scrape

A, B = "GPU-8b2281de-6d3c-22ed-0ec8-d3b864870b8b", "GPU-15338f3e-5fd9-962d-921a-979b820520f0"
Opener = Callable[..., DcgmSource]


@pytest.fixture
def pages() -> Iterator[Pages]:
    with serving() as served:
        yield served


@pytest.fixture
def source(pages: Pages, tmp_path: Path) -> Iterator[Opener]:
    made: list[DcgmSource] = []

    def make(listed: tuple[str, ...] | None = None, expected: int = 1, **keys: Any) -> DcgmSource:
        given_keys = {"url": f"{pages.url}/metrics"} | keys
        made.append(DcgmSource(settings("dcgm", **given_keys), context(tmp_path, listed=listed, expected=expected)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def line(name: str, value: object, uuid: str = A, **labels: str) -> str:
    known = {"gpu": "0", "UUID": uuid, "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"}
    pairs = ",".join(f'{key}="{text}"' for key, text in (known | labels).items())
    return f"DCGM_FI_{name}{{{pairs}}} {value}\n"


def gpu(uuid: str, watts: object = 412.5, **labels: str) -> str:
    return (
        line("DEV_POWER_USAGE", watts, uuid, DCGM_FI_DRIVER_VERSION="550.144.03", **labels)
        + line("DEV_TOTAL_ENERGY_CONSUMPTION", 1234567, uuid, **labels)
        + line("DEV_CLOCKS_EVENT_REASONS", 4, uuid, **labels)
    )


def refused(source: DcgmSource) -> PowerError:
    with pytest.raises(PowerError) as caught:
        source.open()
    assert "\n" not in str(caught.value)
    return caught.value


def test_power_energy_and_reasons_are_read(pages: Pages, source: Opener) -> None:
    text = "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n" + gpu(A) + line("DEV_POWER_MGMT_LIMIT", 700.0)
    pages.pages["/metrics"] = text + line("DEV_FB_TOTAL", 81920)
    dcgm = source()
    (info,) = dcgm.open()
    assert (info.sensor, info.name, info.driver) == (A, "NVIDIA H100 80GB HBM3", "550.144.03")
    assert (info.limit_w, info.memory_gib) == (700.0, 80.0)
    (reading,) = dcgm.read()
    assert (reading.watts, reading.reasons, reading.problem) == (412.5, 4, None)
    assert dcgm.read_counters() == {A: 1234.567}
    assert dcgm.notes == ()


def test_a_limit_of_zero_is_not_known(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A) + line("DEV_POWER_MGMT_LIMIT", 0)
    (info,) = source().open()
    assert info.limit_w is None


@pytest.mark.parametrize(
    ("match", "uuids"),
    [(A, [A]), ("gpu-153", [B]), ({"Hostname": "n2"}, [B]), ({"gpu": 1, "Hostname": "n2"}, [B])],
)
def test_match_names_gpus_by_uuid_or_labels(pages: Pages, source: Opener, match: Any, uuids: list[str]) -> None:
    pages.pages["/metrics"] = gpu(A) + gpu(B, gpu="1", Hostname="n2")
    dcgm = source(match=match)
    assert [info.sensor for info in dcgm.open()] == uuids
    assert "power.match" in dcgm.chosen


def test_a_match_that_fits_nothing_lists_what_there_is(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A)
    error = refused(source(match={"Hostname": "n9"}))
    assert error.reason == "gpu_count_mismatch"
    assert f"there are {A} (gpu 0 of n1)" in error.what


def test_gpus_of_the_spec_are_taken_from_several_hosts(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A)
    pages.pages["/other"] = gpu(B, 300)
    urls = [f"{pages.url}/metrics", f"{pages.url}/other"]
    dcgm = source(listed=(A, B), url=None, urls=urls)
    dcgm.open()
    assert {reading.sensor: reading.watts for reading in dcgm.read()} == {A: 412.5, B: 300.0}
    absent = refused(source(listed=(A, "GPU-ffff"), urls=urls))
    assert "GPU-ffff is listed by no exporter" in absent.what
    assert "fits several GPUs" in refused(source(listed=("GPU-",), urls=urls)).what
    pages.pages["/other"] = 503
    readings = {reading.sensor: reading for reading in dcgm.read()}
    assert readings[A].watts == 412.5
    assert readings[B].watts is None
    assert "answered 503" in str(readings[B].problem)
    pages.pages["/metrics"] = 500
    with pytest.raises(PowerError, match="answered 500"):
        dcgm.read()
    assert refused(source(urls=urls)).reason == "no_power_source"


def test_without_a_choice_there_must_be_as_many_as_the_model_needs(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A) + gpu(B, gpu="1")
    error = refused(source(expected=1))
    assert error.reason == "gpu_count_mismatch"
    assert "needs 1 GPU(s), the exporters list 2" in error.what
    assert "power.match" in str(error.remedy)
    assert len(source(expected=2).open()) == 2


def test_mig_instances_are_one_board(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = "".join(gpu(A, watts, GPU_I_ID=str(place)) for place, watts in ((3, 52.6), (4, 52.7)))
    dcgm = source()
    (info,) = dcgm.open()
    assert info.sensor == A
    assert dcgm.read()[0].watts == 52.6
    assert dcgm.notes == (f"{A} is split into 2 MIG instance(s); the power is that of the whole board",)


def test_shared_gpus_that_are_listed_for_every_pod_count_once(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A, pod="b") + gpu(A, pod="a")
    dcgm = source()
    assert len(dcgm.open()) == 1
    assert dcgm.read()[0].watts == 412.5


@pytest.mark.parametrize("told", ["0", "-1", "NaN", "140737488355328"])
def test_what_is_no_power_is_a_missing_sample(pages: Pages, source: Opener, told: str) -> None:
    pages.pages["/metrics"] = gpu(A)
    dcgm = source()
    dcgm.open()
    pages.pages["/metrics"] = gpu(A, told)
    (reading,) = dcgm.read()
    assert reading.watts is None
    assert "no reading of power" in str(reading.problem)


def test_a_gpu_that_is_no_longer_exported_is_said(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = gpu(A)
    dcgm = source()
    dcgm.open()
    pages.pages["/metrics"] = ""
    assert f"no exporter has power of {A} any more" in str(dcgm.read()[0].problem)


def test_a_counter_that_is_absent_is_noted(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = line("DEV_POWER_USAGE", 100)
    dcgm = source()
    dcgm.open()
    assert dcgm.read_counters() == {}
    assert "TOTAL_ENERGY_CONSUMPTION is not exported" in dcgm.notes[0]
    assert dcgm.read()[0].reasons is None


def test_a_page_without_power_is_no_source(pages: Pages, source: Opener) -> None:
    pages.pages["/metrics"] = "process_cpu_seconds_total 4\n"
    assert "no series DCGM_FI_DEV_POWER_USAGE" in refused(source()).what
    assert "answered 404" in refused(source(url=f"{pages.url}/nowhere")).what
    assert refused(source(url="http://127.0.0.1:1/metrics")).reason == "no_power_source"


@given(st.text(max_size=300) | st.lists(st.sampled_from([gpu(A), gpu(B, "x"), "{", "\x00"])).map("".join))
def test_any_text_can_be_read(text: str) -> None:
    for board in Scrape.parse([text]).boards:
        assert board.uuid
        assert board.reasons is None or board.reasons >= 0
