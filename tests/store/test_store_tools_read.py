"""Results of vllm bench serve, guidellm and aiperf, as those tools wrote them against the embedded engine.

The files under ``tools/`` are real ones, cut down to the keys that matter, without hosts, paths and texts; those whose
name says so are in the layout of an older version.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import GoodputRecord
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.codec import decode, encode
from pytest_tokenwatt.store.stored_run import StoredRun
from pytest_tokenwatt.store.tools.read import read_tool_result

FILES = sorted((Path(__file__).parent / "tools").glob("*.json"))


def content(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "tools" / f"{name}.json").read_text())
    return loaded


def read(told: dict[str, Any], name: str = "run.json") -> StoredRun:
    run = read_tool_result(told, Path(name))
    assert run is not None
    return run


def goodput(run: StoredRun) -> GoodputRecord:
    return run.records[0].scenarios["default"]


def value(run: StoredRun, name: str) -> float | None:
    return goodput(run).figures[name].value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_gives_one_configuration_and_a_spec_that_loads(path: Path, tmp_path: Path) -> None:
    run = read(json.loads(path.read_text()), path.name)
    record = run.records[0]
    assert (len(run.records), record.key, run.status) == (1, path.stem, None)
    assert record.stored is not None
    assert record.stored.source == run.kind
    assert record.identity is not None
    assert record.identity.model_ids == ("tokenwatt/embedded-tiny",)
    assert run.notes
    assert all("\n" not in note for note in run.notes)
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(json.dumps(run.spec))
    spec = load_spec(spec_file, {})
    assert [config.key for config in spec.configurations] == [record.key]
    assert spec.engine.model == "tokenwatt/embedded-tiny"
    unknown: list[str] = []
    assert decode(type(record), json.loads(json.dumps(encode(record))), unknown=unknown.append) == record
    assert unknown == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_file_brings_an_slo_or_goodput(path: Path) -> None:
    record = goodput(read(json.loads(path.read_text())))
    assert (record.slo, record.goodput_tok_s) == ((), None)
    assert record.slo_pass_count == record.repeats == (len(record.windows) == 1)
    assert not any(window.passes for window in record.windows)


def test_other_files_are_no_result_of_a_tool() -> None:
    others: list[dict[str, Any]] = [{}, {"schema": "tokenwatt/1"}, {"benchmarks": []}, {"configs": [], "spec": {}}]
    assert [read_tool_result(told, Path("x.json")) for told in others] == [None] * len(others)


def test_a_rate_of_vllm_bench_serve() -> None:
    run = read(content("vllm-rate"))
    record = goodput(run)
    assert (run.kind, record.mode, record.rate_rps) == ("vllm bench serve", "fixed", 20.0)
    assert value(run, "output_tok_s") == pytest.approx(315.231398, rel=1e-6)
    assert value(run, "ttft_p99_ms") == value(run, "ttft_from_send_p99_ms") == pytest.approx(13.5212480)
    assert value(run, "tpot_p90_ms") == pytest.approx(5.75343903)
    assert value(run, "itl_p99_ms") == pytest.approx(6.72372855)
    assert value(run, "e2e_p50_ms") == pytest.approx(91.6076265)
    assert (value(run, "requests"), value(run, "failed_requests"), value(run, "input_tokens")) == (120, 0, 7797)
    assert value(run, "good_rps") == pytest.approx(19.7019624)
    assert value(run, "ttft_p99.9_ms") is None
    assert any("does not keep the bounds" in note for note in run.notes)
    assert any("from the sending" in note for note in run.notes)


def test_a_mean_is_no_percentile() -> None:
    told = {key: each for key, each in content("vllm-rate").items() if not key.startswith("p99_")}
    assert "ttft_p99_ms" not in goodput(read(told)).figures


def test_details_count_failed_requests() -> None:
    run = read(content("vllm-detailed"))
    found = {percentile.name: percentile for percentile in goodput(run).percentiles}
    assert found["ttft_p99_ms"].infinite
    assert found["ttft_p90_ms"].infinite
    assert (found["ttft_p50_ms"].n, value(run, "failed_requests")) == (120, 15)
    ordered = sorted(ttft for ttft in content("vllm-detailed")["ttfts"] if ttft)
    assert value(run, "ttft_p50_ms") == pytest.approx(1e3 * ordered[59])
    assert value(run, "tpot_p50_ms") == pytest.approx(5.46, abs=0.2)


def test_details_that_do_not_fit_the_counts_are_not_used() -> None:
    told = content("vllm-detailed")
    told["ttfts"] = told["ttfts"][:-1]
    record = goodput(read(told))
    assert {percentile.percentile for percentile in record.percentiles} == {50.0, 90.0, 95.0, 99.0}
    assert record.figures["ttft_p50_ms"].value is None


def test_without_details_a_percentile_of_survivors_is_unknown_or_infinite() -> None:
    told = {key: each for key, each in content("vllm-detailed").items() if not isinstance(each, list)}
    found = {percentile.name: percentile for percentile in goodput(read(told)).percentiles}
    assert (found["ttft_p50_ms"].value_ms, found["ttft_p50_ms"].infinite) == (None, False)
    assert (found["ttft_p99_ms"].value_ms, found["ttft_p99_ms"].infinite) == (None, True)


def test_an_older_vllm_does_not_say_how_many_failed() -> None:
    told = content("vllm-rate")
    del told["failed"]
    told["completed"] = 118
    assert value(read(told), "failed_requests") == 2


def test_a_closed_loop_is_a_profile_and_decides_no_slo() -> None:
    run = read(content("vllm-concurrency"))
    profile = run.records[0].profiles["concurrency-8"]
    assert (profile.concurrency, profile.input_tokens, profile.output_tokens, profile.requests) == (8, 65, 16, 64)
    assert profile.output_tok_s == pytest.approx(1201.04587)
    assert (len(profile.runs), profile.runs[0].requests, profile.memory.peak_gib) == (1, 64, None)
    assert (goodput(run).percentiles, goodput(run).windows, goodput(run).rate_rps) == ((), (), None)
    assert value(run, "ttft_p50_ms") == pytest.approx(10.5952375)
    assert "profiles" in run.spec


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"max_concurrency": 8}, "held requests back"),
        ({"ramp_up_strategy": "linear"}, "ramped up"),
        ({"request_rate": None}, "does not say at which rate"),
    ],
)
def test_a_load_that_is_no_fixed_rate_has_none(changes: dict[str, Any], why: str) -> None:
    run = read(content("vllm-rate") | changes)
    assert goodput(run).rate_rps is None
    assert run.records[0].profiles == {}
    assert any(why in note for note in run.notes)


def test_a_limit_that_was_never_reached_leaves_the_rate() -> None:
    assert goodput(read(content("vllm-rate") | {"max_concurrency": 200})).rate_rps == 20.0


def test_a_zero_is_what_tools_write_without_an_observation() -> None:
    told = content("vllm-rate")
    told |= {key: 0.0 for key in told if key.endswith("_tpot_ms")}
    assert not any(name.startswith("tpot") for name in goodput(read(told)).figures)


def test_guidellm_counts_from_the_instant_at_which_a_request_was_due() -> None:
    run = read(content("guidellm-rates"))
    record = goodput(run)
    assert [window.rate_rps for window in record.windows] == [5.0, 15.0]
    assert (record.rate_rps, value(run, "ttft_p50_ms")) == (None, None)
    slow = {percentile.name: percentile.value_ms for percentile in record.windows[1].percentiles}
    rows = content("guidellm-rates")["benchmarks"][1]["requests"]["successful"]
    assert slow["ttft_p50_ms"] is not None
    assert slow["ttft_p50_ms"] > sorted(row["time_to_first_token_ms"] for row in rows)[len(rows) // 2]
    assert record.windows[1].failures == {"cut_off": 1}
    assert record.windows[0].output_tok_s == pytest.approx(1104 / 12)


def test_guidellm_without_its_requests_has_no_tpot() -> None:
    run = read(content("guidellm-concurrent"))
    assert value(run, "e2e_p50_ms") is not None
    assert not any(name.startswith("tpot") for name in goodput(run).figures)
    assert run.records[0].profiles["concurrency-4"].requests == 48
    assert any("weighted by tokens" in note for note in run.notes)


@pytest.mark.parametrize(("highest", "rates"), [(12.0, [5.0, 15.0]), (10240.0, [])])
def test_a_limit_of_guidellm_hides_waiting_only_where_latencies_count_from_sending(
    highest: float, rates: list[float]
) -> None:
    told = content("guidellm-rates")
    for benchmark in told["benchmarks"]:
        benchmark["requests"] = {"successful": [], "errored": [], "incomplete": []}
        benchmark["metrics"]["request_concurrency"] = {"total": {"max": highest}}
    record = goodput(read(told))
    assert [window.rate_rps for window in record.windows] == rates
    assert not any(each.metric == "tpot" for window in record.windows for each in window.percentiles)


def test_failed_requests_of_guidellm_are_infinite() -> None:
    found = {percentile.name: percentile for percentile in goodput(read(content("guidellm-failed"))).percentiles}
    assert found["ttft_p95_ms"].infinite
    assert found["ttft_p90_ms"].value_ms is not None


@pytest.mark.parametrize("name", ["guidellm-schema-1", "guidellm-0.3"])
def test_older_guidellm_reads_the_same(name: str) -> None:
    run = read(content(name))
    assert goodput(run).rate_rps == 10.0
    assert value(run, "ttft_p99_ms") is not None
    assert value(run, "tpot_p50_ms") is not None
    assert (value(run, "failed_requests"), goodput(run).load_sha256 is not None) == (0, True)


def test_aiperf_tokens_are_the_servers() -> None:
    run = read(content("aiperf-rate"))
    assert (goodput(run).rate_rps, value(run, "output_tokens")) == (15.0, 1920)
    assert value(run, "output_tok_s") == pytest.approx(1920 / 9.04248448)
    assert value(run, "ttft_p99_ms") == pytest.approx(12.5138021)
    assert not any(name.startswith(("tpot", "itl")) for name in goodput(run).figures)
    assert any("TPOT is not covered" in note for note in run.notes)
    assert any("time_to_first_token" in note and "no SLO" in note for note in run.notes)


def test_aiperf_has_a_tpot_when_both_count_the_same_tokens() -> None:
    told = content("aiperf-rate")
    told["output_sequence_length"]["sum"] = told["usage_completion_tokens"]["sum"]
    told["inter_token_latency"] |= {"p50": 5.4, "p75": 5.5, "p90": 5.6, "p95": 5.7, "p99": 5.8}
    assert value(read(told), "tpot_p99_ms") == 5.8


def test_aiperf_percentiles_that_count_failed_requests() -> None:
    run = read(content("aiperf-failed"))
    told = content("aiperf-failed")
    assert value(run, "ttft_p90_ms") == told["adj_time_to_first_token"]["p90"]
    assert value(run, "ttft_p90_ms") != told["time_to_first_token"]["p90"]
    assert {each.name: each.infinite for each in goodput(run).percentiles}["ttft_p99_ms"]
    assert value(run, "failed_requests") == 7


def test_an_aiperf_run_that_broke_off_is_invalid() -> None:
    record = goodput(read(content("aiperf-rate") | {"is_complete": False, "incomplete_reason": "stalled"}))
    assert [str(reason) for reason in record.invalid] == ["run_incomplete: stalled"]


def test_an_older_aiperf_without_versions() -> None:
    told = content("aiperf-rate")
    for key in ("schema_version", "aiperf_version", "benchmark_duration", "usage_completion_tokens"):
        del told[key]
    for key in ("total_osl", "total_isl", "usage_prompt_tokens", "is_complete"):
        told.pop(key, None)
    for metric in told.values():
        if isinstance(metric, dict):
            metric.pop("sum", None)
    told["input_config"] = {"loadgen": {"request_rate": 15.0}, "endpoint": {"model_names": ["m"]}}
    run = read(told)
    assert goodput(run).rate_rps == 15.0
    assert value(run, "ttft_p99_ms") == pytest.approx(12.5138021)
    assert value(run, "output_tok_s") is None
    assert any("tool's own tokenizer" in note for note in run.notes)


def test_files_that_a_tool_calls_all_the_same_are_told_by_their_folder(tmp_path: Path) -> None:
    path = tmp_path / "fp8 run" / "profile_export_aiperf.json"
    run = read_tool_result(content("aiperf-rate"), path)
    assert run is not None
    assert run.records[0].key == "fp8-run"


def test_a_role_is_taken_from_the_name() -> None:
    roles = [read(content("vllm-rate"), f"{name}.json").records[0].role for name in ("baseline", "tuned", "a")]
    assert roles == ["baseline", "tuned", "baseline"]


def test_equal_loads_have_equal_hashes() -> None:
    told = content("vllm-rate")
    faster = told | {"duration": 5.0, "p99_ttft_ms": 13.53}
    assert goodput(read(told)).load_sha256 == goodput(read(faster)).load_sha256 is not None
    assert goodput(read(told)).load_sha256 != goodput(read(told | {"num_prompts": 119, "completed": 119})).load_sha256
    assert goodput(read(told | {"completed": 119, "failed": 1})).load_sha256 is None


@pytest.mark.parametrize(
    ("name", "place", "broken", "what"),
    [
        ("vllm-rate", ("completed",), None, "completed: the key is missing"),
        ("vllm-rate", ("duration",), 0, "duration: expected a number above 0"),
        ("vllm-rate", ("p99_ttft_ms",), "fast", "p99_ttft_ms: expected a number"),
        ("vllm-rate", ("p99_ttft_ms",), 1.0, "ttft: p99 is 1 ms, below p95"),
        ("guidellm-concurrent", ("benchmarks", 0, "duration"), None, "benchmarks[0].duration: the key is missing"),
        ("guidellm-rates", ("benchmarks", 1, "metrics"), 3, "benchmarks[1].metrics: expected a mapping"),
        ("aiperf-rate", ("request_count", "avg"), None, "request_count.avg: the key is missing"),
        ("aiperf-rate", ("time_to_first_token", "unit"), "weeks", "time_to_first_token.unit: expected one of ms"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_the_key(
    name: str, place: tuple[str | int, ...], broken: Any, what: str
) -> None:
    told = content(name)
    inner: Any = told
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = broken
    with pytest.raises(UsageError) as caught:
        read_tool_result(copy.deepcopy(told), Path("run.json"))
    assert str(caught.value).startswith("run.json: ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
