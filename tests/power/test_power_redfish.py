"""Redfish: where a BMC's power is found, and what comes of every way in which it cannot be read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_contexts import context, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power import redfish
from pytest_tokenwatt.power.redfish import RedfishSource
from pytest_tokenwatt.power.redfish_control import pick_entries
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.testing.bmc import FakeBmc

Opener = Callable[..., RedfishSource]
POWER = "Chassis/1/Power"


@pytest.fixture
def source(fake_bmc: FakeBmc, tmp_path: Path) -> Iterator[Opener]:
    """Makes sources of the fake BMC; keys of the spec may be given, ``None`` leaves one out."""
    made: list[RedfishSource] = []

    def make(**keys: Any) -> RedfishSource:
        known = {
            "url": fake_bmc.url,
            "username": fake_bmc.username,
            "password_env": "BMC_PASSWORD",
            "ca_file": str(fake_bmc.ca_file),
        }
        environ = {"BMC_PASSWORD": keys.pop("password", fake_bmc.password)}
        given = {key: value for key, value in (known | keys).items() if value is not None}
        made.append(RedfishSource(settings("redfish", **given), context(tmp_path, environ)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def only(source: RedfishSource) -> Reading:
    (reading,) = source.read()
    return reading


def refused(source: RedfishSource) -> PowerError:
    with pytest.raises(PowerError) as caught:
        source.open()
    assert caught.value.reason == "no_power_source"
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


def opened(source: RedfishSource) -> RedfishSource:
    source.open()
    return source


def test_the_power_of_the_only_chassis_is_read_with_credentials(fake_bmc: FakeBmc, source: Opener) -> None:
    bmc = source()
    (sensor,) = bmc.open()
    assert sensor.sensor == "127.0.0.1/1"
    assert only(bmc) == Reading("127.0.0.1/1", 500.0)
    assert "chassis 1: Power.PowerControl" in bmc.chosen
    assert {request.username for request in fake_bmc.requests} == {fake_bmc.username}
    assert bmc.notes == ()


def test_a_path_that_was_found_is_kept(fake_bmc: FakeBmc, source: Opener) -> None:
    bmc = opened(source())
    before = len(fake_bmc.requests)
    bmc.read()
    bmc.read()
    assert [request.path for request in fake_bmc.requests[before:]] == ["/redfish/v1/Chassis/1/Power"] * 2


def test_environment_metrics_come_first(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.set_environment(612.5, EnergykWh={"Reading": 1234.5})
    bmc = opened(source())
    assert only(bmc).watts == 612.5
    assert "EnvironmentMetrics" in bmc.chosen
    assert "EnergykWh" in bmc.notes[0]


@pytest.mark.parametrize(
    ("entries", "watts", "why"),
    [
        (
            [
                {"Name": "CPU Sub-system Power", "PowerConsumedWatts": 200},
                {"Name": "Server Power Control", "PowerConsumedWatts": 900},
                {"Name": "Memory Sub-system Power", "PowerConsumedWatts": 50},
            ],
            900,
            "Server Power Control",
        ),
        (
            [{"Name": f"PSU{place} Power", "PowerConsumedWatts": watts} for place, watts in enumerate((310, 290))],
            600,
            "sum of 2 power supplies",
        ),
        (
            [{"Name": "Input", "PowerConsumedWatts": 700}, {"Name": "GPU Power", "PowerConsumedWatts": 400}],
            700,
            "not a part",
        ),
        ([700, 300, 200], 700, "member 0"),
    ],
)
def test_of_several_entries_the_whole_is_taken(
    fake_bmc: FakeBmc, source: Opener, entries: list[object], watts: float, why: str
) -> None:
    fake_bmc.set_power_control(*entries)
    bmc = opened(source())
    assert only(bmc).watts == watts
    assert why in bmc.chosen


def test_entries_that_do_not_tell_the_whole_are_refused(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.set_power_control({"Name": "A", "PowerConsumedWatts": 300}, {"Name": "B", "PowerConsumedWatts": 310})
    assert 'does not tell which of its entries is the whole: 0 "A", 1 "B"' in str(refused(source()))


def test_an_oem_value_comes_before_the_supplies(fake_bmc: FakeBmc, source: Opener) -> None:
    oem = {
        "ts_fujitsu": {
            "ChassisPowerConsumption": {"CurrentPowerConsumptionW": 431},
            "ChassisPowerSensors": [{"CurrentPowerConsumptionW": 200}, {"CurrentPowerConsumptionW": 190}],
        }
    }
    fake_bmc.set_power_control(Oem=oem)
    fake_bmc.set_supplies(111.0)
    bmc = opened(source())
    assert only(bmc).watts == 431
    assert "ChassisPowerConsumption.CurrentPowerConsumptionW" in bmc.chosen


def test_supplies_are_added_up_and_none_is_left_out(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.drop("Power")
    fake_bmc.set_supplies(300.0, 0, None, 310.5, states=("Enabled", "StandbySpare", "Absent", "Enabled"))
    bmc = opened(source())
    assert only(bmc).watts == 610.5
    assert "3 power supplies" in bmc.chosen
    fake_bmc.set("Chassis/1/PowerSubsystem/PowerSupplies/0/Metrics", {"InputPowerWatts": {"Reading": None}})
    missing = only(bmc)
    assert missing.watts is None
    assert missing.problem is not None
    assert "PowerSupplies/0/Metrics says null" in missing.problem.text


def test_the_total_of_the_sensors_comes_last_and_has_its_time(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.drop("Power")
    fake_bmc.set_sensors(
        total_power={"ReadingType": "Power", "Reading": 777.0, "ReadingTime": "2026-01-02T03:04:05Z"},
        power_ps0_input={"ReadingType": "Power", "Reading": 400.0},
        temp_inlet={"ReadingType": "Temperature", "Reading": 22.0},
    )
    bmc = opened(source())
    assert only(bmc) == Reading("127.0.0.1/1", 777.0, stamp=1767323045.0)
    assert bmc.chosen == "chassis 1: sensor total_power"
    assert not any("temp_inlet" in request.path for request in fake_bmc.requests)


@pytest.mark.parametrize("told", [None, 0, "N/A", -1, "", True, {"Reading": 4}, float("nan")])
def test_what_is_no_reading_is_a_missing_sample_and_asked_again(
    fake_bmc: FakeBmc, source: Opener, told: object
) -> None:
    bmc = opened(source())
    fake_bmc.set_power_control(told)
    missing = only(bmc)
    assert missing.watts is None
    assert missing.problem is not None
    assert missing.problem.code == "read_failed"
    assert "which is no reading of power" in missing.problem.text
    fake_bmc.set_power_control(321.0)
    assert only(bmc).watts == 321.0


def test_a_bmc_that_is_not_ready_is_looked_through_again(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.set_environment(None)
    fake_bmc.set_power_control(0)
    bmc = opened(source())
    assert only(bmc).watts is None
    fake_bmc.set_power_control(350.0)
    assert only(bmc).watts == 350.0
    assert "PowerControl" in bmc.chosen


def test_a_resource_that_is_gone_is_looked_for_again(fake_bmc: FakeBmc, source: Opener) -> None:
    bmc = opened(source())
    fake_bmc.drop("Power")
    fake_bmc.set_environment(450.0)
    assert only(bmc).watts == 450.0
    assert "EnvironmentMetrics" in bmc.chosen


def test_no_power_at_all_is_said(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.drop("Power")
    error = refused(source())
    assert "chassis 1: there is no power that can be read" in error.what
    assert "ipmi" in str(error.remedy)


def test_of_several_chassis_the_machine_is_taken(fake_bmc: FakeBmc, source: Opener) -> None:
    for name, kind in (("HGX_GPU_0", "Module"), ("Backplane", "Enclosure")):
        fake_bmc.add_chassis(name, kind)
        fake_bmc.set_power_control(70.0, chassis=name)
    bmc = opened(source())
    assert only(bmc).watts == 500.0
    assert not any("HGX_GPU_0/Power" in request.path for request in fake_bmc.requests)


def test_several_machines_are_listed_until_one_is_named(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.add_chassis("Node2", "Sled")
    fake_bmc.set_power_control(222.0, chassis="Node2")
    error = refused(source())
    assert "several chassis have power: 1 (RackMount), Node2 (Sled)" in error.what
    assert "power.chassis" in str(error.remedy)
    assert only(opened(source(chassis="node2"))).watts == 222.0
    assert "no chassis blade9; there are 1, Node2" in refused(source(chassis="blade9")).what


def test_a_part_does_not_stand_in_for_a_machine_that_cannot_be_read(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.add_chassis("GPU_0", "Module")
    fake_bmc.set_power_control(70.0, chassis="GPU_0")
    fake_bmc.answer(POWER, 500)
    assert "answered 500" in refused(source()).what


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "the credentials were refused; check power.username"),
        (403, "this user may not read it; give power.username the right"),
        (404, "there is no such resource; check power.url"),
        (500, "it cannot answer now; wait until it is ready"),
        (503, "it cannot answer now; wait until it is ready"),
        (429, "too many requests; lower power.sampling_hz"),
    ],
)
def test_each_status_has_its_line(fake_bmc: FakeBmc, source: Opener, status: int, says: str) -> None:
    bmc = opened(source())
    fake_bmc.answer("Chassis", status)
    assert f"answered {status}: {says}" in str(refused(source()))
    fake_bmc.answer(POWER, status)
    if status == 404:
        return
    with pytest.raises(PowerError, match=says) as caught:
        bmc.read()
    assert caught.value.reason == "read_failed"
    fake_bmc.heal(POWER)
    assert only(bmc).watts == 500.0


def test_wrong_credentials_are_tried_once(fake_bmc: FakeBmc, source: Opener) -> None:
    assert "credentials were refused" in str(refused(source(password="wrong")))
    assert len(fake_bmc.requests) == 1


def test_a_missing_password_is_named(source: Opener) -> None:
    assert "BMC_PASSWORD is not set" in str(refused(source(password="")))


def test_a_redirect_is_not_followed(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.redirect("Chassis", f"{fake_bmc.url}/elsewhere?token=abc")
    error = refused(source())
    assert "a redirect, which is not followed with credentials" in error.what
    assert "abc" not in str(error)
    assert [request.path for request in fake_bmc.requests] == ["/redfish/v1/Chassis"]


def test_a_link_to_another_host_is_not_followed(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.set("Chassis", {"Members": [{"@odata.id": "https://127.0.0.1:1/redfish/v1/Chassis/1"}]})
    assert "which is no path on it" in str(refused(source()))


def test_an_untrusted_certificate_ends_before_the_credentials(fake_bmc: FakeBmc, source: Opener) -> None:
    error = refused(source(ca_file=None))
    assert "not trusted; no credentials were sent" in error.what
    assert "power.ca_file" in str(error.remedy)
    assert fake_bmc.requests == ()


@pytest.mark.parametrize(("certificate", "says"), [("expired", "has expired"), ("other_host", "for another")])
def test_a_bad_certificate_ends_before_the_credentials(
    fake_bmc: FakeBmc, source: Opener, certificate: Any, says: str
) -> None:
    fake_bmc.use_certificate(certificate)
    assert says in str(refused(source()))
    assert not fake_bmc.credentials_seen


def test_verification_can_be_switched_off_and_is_noted(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.use_certificate("expired")
    bmc = opened(source(ca_file=None, verify_tls=False))
    assert only(bmc).watts == 500.0
    assert "not verified" in bmc.notes[0]


def test_a_useless_ca_file_is_named(source: Opener, tmp_path: Path) -> None:
    assert "ca_file" in str(refused(source(ca_file="absent.pem")))
    (tmp_path / "empty.pem").write_text("nothing")
    assert "ca_file" in str(refused(source(ca_file="empty.pem")))


def test_nobody_at_the_address(source: Opener) -> None:
    assert "Connection refused" in str(refused(source(url="https://127.0.0.1:1")))


@pytest.mark.parametrize(("text", "says"), [("<html>", "not JSON"), ("[1]", "not an object")])
def test_other_bodies_are_no_resources(fake_bmc: FakeBmc, source: Opener, text: str, says: str) -> None:
    fake_bmc.say("Chassis", text)
    assert says in str(refused(source()))


def test_an_endless_body_is_cut(fake_bmc: FakeBmc, source: Opener) -> None:
    fake_bmc.say("Chassis", "[" + "1," * (3 << 20))
    assert "larger than 4 MiB" in str(refused(source()))


@pytest.mark.parametrize("slow", ["delay", "trickle"])
def test_a_slow_bmc_takes_a_bounded_time(
    fake_bmc: FakeBmc, source: Opener, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    bmc = opened(source())
    getattr(fake_bmc, slow)(POWER, 0.2 if slow == "trickle" else 20.0)
    monkeypatch.setattr(redfish, "READ_S", 0.3)
    with pytest.raises(PowerError, match="no complete answer within"):
        bmc.read()
    fake_bmc.heal(POWER)
    assert only(bmc).watts == 500.0


def test_a_search_that_takes_too_long_says_so(
    fake_bmc: FakeBmc, source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bmc.delay("Chassis", 0.3)
    monkeypatch.setattr(redfish, "OPEN_S", 0.2)
    assert "within 0.2 s" in str(refused(source()))


def test_the_password_is_nowhere(fake_bmc: FakeBmc, source: Opener, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bmc = source(password="hunter2-secret")
    error = refused(bmc)
    cmdline = Path("/proc/self/cmdline").read_bytes() if Path("/proc/self/cmdline").exists() else b""
    shown = f"{bmc!r} {bmc} {error!r} {error} {bmc.notes} {caplog.text} {fake_bmc!r} {vars(bmc)} {vars(bmc._bmc)}"
    for secret in ("hunter2-secret", "b3BlcmF0b3I6"):
        assert secret not in shown
        assert secret.encode() not in cmdline


ENTRY = st.dictionaries(
    st.sampled_from(["Name", "MemberId", "PowerConsumedWatts"]),
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["Total", "CPU Power", "PSU1"]),
)


@given(st.lists(ENTRY, max_size=5))
def test_entries_of_any_kind_are_picked_at_most_once_and_only_with_power(entries: list[dict[str, Any]]) -> None:
    pick = pick_entries(entries)
    if pick is not None:
        assert len(set(pick.positions)) == len(pick.positions) > 0
        assert all("PowerConsumedWatts" in entries[position] for position in pick.positions)


def test_through_the_sampler_a_bmc_gives_a_trace(fake_bmc: FakeBmc, source: Opener) -> None:
    sampler = Sampler(source(), 50.0, "redfish")
    assert sampler.start(10.0) is None
    try:
        assert sampler.cover(time.monotonic(), 10.0)
        fake_bmc.answer(POWER, 503)
        assert not sampler.cover(time.monotonic() + 60, 0.3)
    finally:
        sampler.stop(10.0)
    trace = sampler.trace()
    assert (trace.source, trace.kind, trace.refresh_s) == ("redfish", "node", 60.0)
    assert 500.0 in trace.sensors[0].watts
    assert any("answered 503" in event.reason.text for event in trace.events)


def test_a_source_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match=r"power\.url is missing"):
        RedfishSource(settings("redfish"), context(tmp_path))
