from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.engine.metrics import ServerMetrics, growth, merge

TEXT = r"""
# HELP vllm:num_preemptions_total Cumulative number of preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
vllm:num_preemptions_total{engine="1",model_name="m"} 4.0 1796049610209
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0"} 1.79e+09
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{le="1.0"} 5
vllm:iteration_tokens_total_bucket{le="+Inf"} 9
vllm:iteration_tokens_total_sum 88.0
vllm:iteration_tokens_total_count 9.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} NaN
vllm:top{engine="0"} +Inf
vllm:cache_config_info{cache_dtype="fp8",odd="a\"b\\c\nd,}",empty=""} 1.0
untyped_total 2 # {trace_id="x"} 0.5
# EOF
"""


def test_values_are_summed_over_label_sets() -> None:
    metrics = ServerMetrics.parse(TEXT)
    assert metrics.value("vllm:num_preemptions_total") == 7
    assert metrics.value("vllm:num_preemptions_total", {"engine": "1"}) == 4
    assert metrics.value("vllm:num_preemptions_total", {"engine": "2"}) is None
    assert metrics.value("absent") is None


def test_what_is_not_finite_is_no_value() -> None:
    metrics = ServerMetrics.parse(TEXT)
    assert metrics.value("vllm:kv_cache_usage_perc") is None
    assert metrics.value("vllm:top") is None


def test_labels_with_escapes() -> None:
    labels = ServerMetrics.parse(TEXT).labels("vllm:cache_config_info")
    assert labels == {"cache_dtype": "fp8", "odd": 'a"b\\c\nd,}', "empty": ""}
    assert ServerMetrics.parse(TEXT).labels("absent") is None


def test_counters_are_what_only_grows() -> None:
    assert ServerMetrics.parse(TEXT).counters() == {
        "vllm:num_preemptions_total": 7,
        "vllm:iteration_tokens_total_sum": 88,
        "vllm:iteration_tokens_total_count": 9,
        "untyped_total": 2,
    }


def test_growth_and_resets() -> None:
    before = ServerMetrics.parse("a_total 5\nb_total{x='1'} 1\nc_total 9\nd_total{k=\"1\"} 1\n")
    after = ServerMetrics.parse('a_total 7.5\nc_total 3\nd_total{k="1"} 2\nd_total{k="2"} 4\ne_total 6\n')
    assert growth(before, after) == {"a_total": 2.5, "c_total": None, "d_total": 5.0, "e_total": 6.0}
    assert growth(after, before)["e_total"] is None


def test_one_series_going_back_is_a_reset_even_if_the_sum_grows() -> None:
    before = ServerMetrics.parse('a_total{e="0"} 100\na_total{e="1"} 1\n')
    after = ServerMetrics.parse('a_total{e="0"} 3\na_total{e="1"} 500\n')
    assert growth(before, after) == {"a_total": None}


def test_a_restarted_server_makes_every_growth_unknown() -> None:
    before = ServerMetrics.parse("process_start_time_seconds 1000\na_total 1\n")
    after = ServerMetrics.parse("process_start_time_seconds 1500\na_total 2\n")
    assert growth(before, after) == {"a_total": None}


def test_readings_of_several_endpoints_are_joined() -> None:
    one, two = ServerMetrics.parse("a_total 1\n"), ServerMetrics.parse("a_total 2\n")
    assert merge([one, two]).value("a_total") == 3
    lost = merge([one, ServerMetrics(problem="GET x answered 404")])
    assert lost.value("a_total") is None
    assert lost.problem == "GET x answered 404"


def test_huge_and_broken_lines_are_passed_over() -> None:
    text = "\n".join(
        ["a" * (1 << 21), 'x{y="1} 3', "x{y=1} 3", "z 1_0", "z", "# TYPE", "{} 1", "good 1", 'g{a="b"', "w 0x1"]
    )
    assert ServerMetrics.parse(text).samples.keys() == {"good"}


names = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)


@given(st.text())
def test_no_text_gives_a_traceback(text: str) -> None:
    metrics = ServerMetrics.parse(text)
    for name in metrics.samples:
        value = metrics.value(name)
        assert value is None or math.isfinite(value)
    assert all(value is None or math.isfinite(value) for value in growth(metrics, metrics).values())


@given(
    st.lists(
        st.sampled_from(
            ["a_total", "{", "}", 'x="', '"', "\\", ",", " ", "\n", "1", "nan", "-inf", "# TYPE a_total counter"]
        )
    )
)
def test_no_shuffled_grammar_gives_a_traceback(parts: list[str]) -> None:
    metrics = ServerMetrics.parse("".join(parts))
    growth(metrics, metrics)


@given(names, st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.text()), st.floats())
def test_what_a_server_writes_is_read_back(name: str, labels: dict[str, str], value: float) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    written = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    (sample,) = ServerMetrics.parse(f"{name}{{{written}}} {value}\n").samples[name]
    assert dict(sample.labels) == labels
    assert sample.value == value or math.isnan(value)
