"""What the command line makes of a spec: quick, role, endpoint; and the hash that makes records comparable."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_texts import load

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

ENGINE = "engine: {command: [serve, --port, '{port}'], args: [-x], prepare: [p], cleanup: [c], env: {A: b}}\n"
ONE = ENGINE + "slo: {ttft_p99_ms: 5}\n"
TWO = ONE + "configs: [{key: base, role: baseline}, {key: tuned, engine: {args: [--fp8]}}]\n"


def digest(spec: Spec, number: int = 0) -> str:
    config = spec.configurations[number]
    return spec.digest(config, config.scenarios[0])


def test_quick_caps_every_measurement() -> None:
    spec = load(
        ONE + "power: [{sampling_hz: 1}, {sampling_hz: 20}]\naccuracy: {suite: s, seeds: 3}\ndrift: {sequences: 500}\n"
        "profiles: {serve: {}}\nscenarios: [{name: a, measurement: {window_s: 600}}]\n"
        "configs: [{key: b, power: {sampling_hz: 2}}]\n"
    )
    quick = spec.quick()
    assert (spec.is_quick, quick.is_quick) == (False, True)
    for measurement in (quick.measurement, quick.configurations[0].scenarios[0].measurement):
        assert (measurement.warmup_s, measurement.warmup_max_s) == (15, 15)
        assert (measurement.window_s, measurement.search_window_s, measurement.repeats) == (60, 30, 1)
        assert measurement.request_timeout_s == 300
    assert [source.sampling_hz for source in quick.power] == [5, 20]
    assert [source.sampling_hz for source in quick.configurations[0].power] == [5]
    assert (quick.accuracy[0].limit, quick.accuracy[0].seeds) == (50, 1)
    assert quick.drift is not None
    assert quick.drift.sequences == 64
    assert quick.profiles["serve"].repeats == 1
    assert spec.configurations[0].scenarios[0].measurement.window_s == 600, "the spec itself is unchanged"


def test_quick_keeps_what_is_shorter_already() -> None:
    spec = load(
        ONE + "measurement: {warmup_s: 2, warmup_max_s: 4, window_s: 5, search_window_s: 3}\ndrift: {sequences: 8}\n"
    )
    quick = spec.quick()
    assert quick.measurement.model_copy(update={"repeats": 2}) == spec.measurement
    assert quick.drift == spec.drift


def test_the_role_of_a_spec_without_configs() -> None:
    spec = load(ONE)
    assert (spec.configurations[0].key, spec.configurations[0].role) == ("baseline", "baseline")
    tuned = spec.with_role("tuned", "new image").configurations[0]
    assert (tuned.key, tuned.role, tuned.label) == ("tuned", "tuned", "new image")
    assert spec.with_role("other").configurations[0].label == "other"
    labelled = spec.with_role(None, "mine").configurations[0]
    assert (labelled.key, labelled.label) == ("baseline", "mine")
    assert spec.with_role() is spec
    assert tuned.gates.on_missing_baseline == "record"
    assert spec.with_role("tuned").baseline is None


def test_roles_that_cannot_be_given() -> None:
    with pytest.raises(UsageError, match="with configs:"):
        load(TWO).with_role("tuned")
    with pytest.raises(UsageError, match="there is no role first; roles: baseline, tuned, other"):
        load(ONE).with_role("first")


def test_a_missing_baseline_fails_where_configs_are_written() -> None:
    assert load(TWO).configurations[0].gates.on_missing_baseline == "fail"
    assert load(ONE + "gates: {on_missing_baseline: fail}\n").configurations[0].gates.on_missing_baseline == "fail"


def test_an_endpoint_replaces_the_start() -> None:
    spec = load(TWO)
    attached = spec.with_endpoint("tuned", "http://gpu:8000/")
    base, tuned = attached.configurations
    assert base == spec.configurations[0]
    assert tuned.engine.method == "attach"
    assert tuned.engine.endpoint == "http://gpu:8000/v1"
    assert (tuned.engine.args, tuned.engine.prepare, tuned.engine.cleanup) == ((), (), ())
    assert tuned.engine.env == {"A": "b"}
    assert tuned.raw["engine"] == {"env": {"A": "b"}, "endpoint": "http://gpu:8000/v1"}
    metrics = load("engine: {endpoint: 'http://old/v1', metrics: 'http://old/m'}\n").with_endpoint(
        None, "http://new/v1"
    )
    assert metrics.configurations[0].engine.metrics is None, "the old engine's metrics are not the new one's"
    assert load(ONE).with_endpoint(None, "http://h/v1").configurations[0].engine.endpoint == "http://h/v1"


@pytest.mark.parametrize(
    ("key", "url", "message"),
    [
        (None, "http://h/v1", "one endpoint was given for several configurations; write base=URL, tuned=URL"),
        ("tund", "http://h/v1", "there is no configuration tund; did you mean tuned? configurations: base, tuned"),
        ("tuned", "h:8000", "the endpoint is not an http"),
        ("tuned", "http://u:secret@h/v1", "the endpoint has a user or password in the URL"),
    ],
)
def test_endpoints_that_cannot_be_given(key: str | None, url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(TWO).with_endpoint(key, url)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        "slo: {ttft_p99_ms: 6}",
        "slo: {ttft_p99_ms: 5}\nworkload: {seed: 1}",
        "slo: {ttft_p99_ms: 5}\nworkload: {input_tokens: 9}",
    ],
)
def test_workload_and_slo_are_in_the_digest(change: str) -> None:
    start = "engine: {endpoint: 'http://h/v1'}\n"
    assert digest(load(start + change)) != digest(load(start + "slo: {ttft_p99_ms: 5}"))


def test_limits_labels_and_starts_are_not_in_the_digest() -> None:
    one = digest(load(ONE))
    assert digest(load(ONE + "name: other\ngates: {goodput: {min: 0.1}}\nsweep: {growth: 3}\n")) == one
    assert digest(load(TWO), 0) == digest(load(TWO), 1) == one
    assert digest(load(ONE.replace("ttft_p99_ms: 5", "ttft_p99.0_ms: 5.0"))) == one


def test_a_trace_file_counts_by_its_content(tmp_path: Path) -> None:
    spec_file, trace = tmp_path / "spec.yaml", tmp_path / "trace.jsonl"
    spec_file.write_text(ONE + "workload: {trace: trace.jsonl}\n", encoding="utf-8")
    trace.write_text("{}\n", encoding="utf-8")
    first = digest(load_spec(spec_file, {}))
    trace.write_text("{ }\n", encoding="utf-8")
    assert digest(load_spec(spec_file, {})) != first
    trace.rename(tmp_path / "other.jsonl")
    spec_file.write_text(ONE + "workload: {trace: other.jsonl}\n", encoding="utf-8")
    (tmp_path / "other.jsonl").write_text("{}\n", encoding="utf-8")
    assert digest(load_spec(spec_file, {})) == first


def test_paths_start_at_the_spec_file() -> None:
    spec = load(ONE, name="dir/spec.yaml")
    assert spec.resolve("a/b.txt") == Path("dir/a/b.txt")
    assert spec.resolve("/a/b.txt") == Path("/a/b.txt")
    assert spec.resolve("~/a").is_absolute()
