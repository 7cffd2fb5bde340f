"""The report in a pull request: verdicts first, side by side, harmless whatever it quotes, and short."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_samples import CONTEXT, GATES, RECORDS, energy_of, gate, goodput_of, record_of, spec_of

from pytest_tokenwatt.records import Reason, Verdict
from pytest_tokenwatt.report.coverage import QUICK, SIMULATED, caveats
from pytest_tokenwatt.report.gfm import APART, escaped, fenced
from pytest_tokenwatt.report.html.material import GateWords
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.report.markdown import render_markdown
from pytest_tokenwatt.report.text import one_line

MOST_LETTERS = 55_000
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
DROP = Reason("accuracy_drop", "-8.0 pt < -1.0 pt")
BAD = (
    *GATES,
    gate("tuned", "accuracy", Verdict.FAIL, value=-8.0, unit="pt", limit=-1.0, error=4.2, reasons=(DROP,)),
    gate("tuned", "kl", Verdict.INVALID, reasons=(Reason("engine_died", "tail: | <b>@team</b> `x`\n# y"),)),
    gate("tuned", "speed", Verdict.INCONCLUSIVE, reasons=(Reason("within_error", "cannot tell"),)),
    gate("tuned", "energy", Verdict.INFO, value=1.144, unit="ratio"),
)


def report_of(tmp_path: Path, gates: Any = BAD, **changes: Any) -> dict[str, Any]:
    return {**build_report(spec_of(tmp_path), RECORDS, gates, CONTEXT), **changes}


def cells(markdown: str) -> list[list[list[str]]]:
    """The text of every cell of every table, as a reader sees it."""
    tables: list[list[list[str]]] = []
    for token in GFM.parse(markdown):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and tables and tables[-1] and token.level >= 4:
            tables[-1][-1].append(seen(token))
    return tables


def seen(token: Token) -> str:
    """What is left of a line when its Markdown and its HTML are taken away."""
    html = [each for each in token.children or [] if each.type == "html_inline"]
    assert {each.content for each in html} <= {"<span>", "</span>", "<br>"}
    return "".join(each.content for each in token.children or [] if each.type != "html_inline")


def test_the_verdict_and_its_counts_come_first(tmp_path: Path) -> None:
    first = render_markdown(report_of(tmp_path)).splitlines()[0]
    assert first == "## ❌ tokenwatt: 1 fail, 1 invalid, 1 inconclusive, 3 pass, 1 informational"


@pytest.mark.parametrize(
    ("gates", "first"),
    [
        (GATES, "## ✅ tokenwatt: 3 pass"),
        ((gate("a", "slo"), gate("a", "kl", Verdict.INCONCLUSIVE)), "## ❔ tokenwatt: 1 inconclusive, 1 pass"),
        ((gate("a", "energy", Verdict.INFO),), "## tokenwatt: 1 informational"),
        ((), "## tokenwatt: no gate was judged"),
    ],
)
def test_the_sign_is_that_of_the_worst_verdict(tmp_path: Path, gates: Any, first: str) -> None:
    assert render_markdown(report_of(tmp_path, gates)).splitlines()[0] == first


def test_gates_are_a_table_with_the_worst_first_and_words_for_verdicts(tmp_path: Path) -> None:
    heading, *rows = cells(render_markdown(report_of(tmp_path)))[0]
    assert heading == ["configuration", "gate", "value", "rule", "verdict"]
    assert rows == [
        ["tuned", "accuracy", "-8 ± 4.2 pt", "limit -1 pt", "❌ fail"],
        ["tuned", "kl", "–", "", "⚠️ invalid"],
        ["tuned", "speed", "–", "", "❔ inconclusive"],
        ["baseline", "slo", "–", "", "✅ pass"],
        ["tuned", "slo", "–", "", "✅ pass"],
        ["tuned", "goodput", "1.11 ± 0.036 ratio", "limit 0.95 ratio", "✅ pass"],
        ["tuned", "energy", "1.14 ratio", "", "informational"],
    ]


def test_the_words_of_the_table_win(tmp_path: Path) -> None:
    words = {"h100.yaml::tuned::goodput": GateWords("5057 tok/s, 1.106 [1.08, 1.13]", ">= 0.95")}
    rows = cells(render_markdown(report_of(tmp_path, GATES), words=words))[0]
    assert rows[-1] == ["tuned", "goodput", "5057 tok/s, 1.106 [1.08, 1.13]", ">= 0.95", "✅ pass"]


def test_a_bare_report_has_the_words_of_its_gates(tmp_path: Path) -> None:
    worded = [replace(GATES[0], text="11.2 req/s, TPOT p99 44.6 ms", rule="<= 50 ms"), *GATES[1:]]
    report = build_report(spec_of(tmp_path), RECORDS, worded, CONTEXT)
    rows = cells(render_markdown(report))[0]
    assert ["baseline", "slo", "11.2 req/s, TPOT p99 44.6 ms", "<= 50 ms", "✅ pass"] in rows


def test_figures_stand_side_by_side(tmp_path: Path) -> None:
    figures = {row[0]: row[1:] for row in cells(render_markdown(report_of(tmp_path)))[1]}
    assert figures[""] == ["baseline (vllm-default)", "tuned (vllm-fp8kv)"]
    assert figures["Rate within the SLO"] == ["11.2 req/s", "11.2 req/s"]
    assert figures["Goodput"] == ["4572 tok/s ± 3.6 %", "5057 tok/s ± 3.6 % (+10.6 %)"]
    assert figures["TTFT p99, at most 2000 ms"][0] == "340 ms [320, 371]"
    assert figures["TPOT p99, at most 50 ms"][0] == "44.6 ms [44, …]"
    assert figures["Tokens per joule"][1].startswith("8.21 tok/J [")
    assert figures["Tokens per joule"][1].endswith("(+14.4 %)")
    assert figures["Node power"] == ["637 W", "616 W"]
    assert "KL divergence" not in figures


def test_quality_speed_and_memory_have_their_rows(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    report["configs"][0] |= {"accuracy": {"score": 96.0, "delta_pts": 0.0, "suite": "gsm8k"}, "peak_gib": 55.602}
    report["configs"][1] |= {
        "accuracy": {"score": 88.0, "delta_pts": -8.0, "interval_pts": [-17.2, 1.2], "suite": "gsm8k"},
        "kl": {"kl": 0.0097, "kl_se": 0.0005},
        "speed": 1.351,
        "memory": 1.784,
        "peak_gib": 30.1,
    }
    report["configs"][1]["intervals"] |= {"speed": {"low": 1.34, "high": 1.362}}
    figures = {row[0]: row[1:] for row in cells(render_markdown(report))[1]}
    assert figures["Accuracy (gsm8k)"] == ["96.0 %", "88.0 % (-8.0 pt [-17.2, +1.2])"]
    assert figures["KL divergence"] == ["–", "0.0097 ± 0.00098 nats/token"]
    assert figures["Speed against the baseline"] == ["–", "1.35× [1.34, 1.36]"]
    assert figures["Memory against the baseline"] == ["–", "1.78×"]
    assert figures["Peak memory (serve)"] == ["55.6 GiB", "30.1 GiB"]


def test_several_scenarios_and_suites_have_rows_of_their_own(tmp_path: Path) -> None:
    report = report_of(tmp_path, scenarios={"default": {}, "rag": {"slo": {"ttft_p99_ms": 5000.0}}})
    for config in report["configs"]:
        config["scenarios"] = {"default": {}, "rag": {"rate_rps": 3.0, "goodput_tok_s": 700.0, "ttft_p99_ms": 4200.0}}
        config["accuracy"] = [
            {"score": 96.0, "suite": "a"},
            {"score": None, "suite": "b"},
            {"score": 70.0, "suite": "c"},
        ]
    figures = {row[0]: row[1:] for row in cells(render_markdown(report))[1]}
    assert figures["Goodput (rag)"] == ["700 tok/s", "700 tok/s (+0.0 %)"]
    assert figures["TTFT p99 (rag), at most 5000 ms"] == ["4200 ms", "4200 ms"]
    assert [name for name in figures if name.startswith("Accuracy")] == ["Accuracy (a)", "Accuracy (c)"]


def test_what_is_not_to_be_believed_says_so_beside_the_figure(tmp_path: Path) -> None:
    broken = energy_of(8.2, 0.6, invalid=(Reason("power_gap", "3 s without a sample"),))
    records = (RECORDS[0], record_of("tuned", goodput_of(5056.9, energy=broken), invalid=(DROP,)))
    figures = cells(render_markdown(build_report(spec_of(tmp_path), records, BAD, CONTEXT)))[1]
    assert figures[0][2] == "tuned (vllm-fp8kv) ⚠️ invalid"
    assert next(row for row in figures if row[0] == "Node power")[2] == "600 W (invalid)"


def test_many_configurations_are_several_tables_with_the_baseline_in_each(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    tuned = report["configs"][1]
    report["configs"][1:] = [{**tuned, "key": f"v{number}", "label": f"v{number}"} for number in range(10)]
    headings = [table[0] for table in cells(render_markdown(report))[1:]]
    assert [heading[1] for heading in headings] == ["baseline (vllm-default)"] * 3
    assert [key for heading in headings for key in heading[2:]] == [f"v{number}" for number in range(10)]


def test_reasons_are_given_for_all_that_is_not_a_pass(tmp_path: Path) -> None:
    text = render_markdown(report_of(tmp_path))
    assert "- **tuned accuracy** fail: -8.0 pt &lt; -1.0 pt (accuracy_drop)\n" in text
    assert "- **tuned speed** inconclusive: cannot tell (within_error)\n" in text


def test_gates_that_share_their_reasons_are_named_together(tmp_path: Path) -> None:
    start = Reason("engine_start_failed", "the engine exited with code 1")
    gates = [gate("tuned", name, Verdict.INVALID, reasons=(start,)) for name in ("slo", "kl")]
    assert render_markdown(report_of(tmp_path, gates)).count("exited with code 1") == 1


def test_caveats_stand_above_the_verdicts(tmp_path: Path) -> None:
    lines = ["Simulated engine: no hardware", "Quick mode: validation only", "Fleet figures: none"]
    text = render_markdown(report_of(tmp_path, status="draft", not_covered=lines))
    top = text.split("### Gates")[0]
    assert "> [!WARNING]\n> Draft: not for publishing.\n>\n> Simulated engine: no hardware\n>\n> Quick mode" in top
    assert "Fleet" not in top
    assert "[!WARNING]" not in render_markdown(report_of(tmp_path, status="published", not_covered=[]))


def test_every_caveat_of_a_run_is_known_by_its_first_words(tmp_path: Path) -> None:
    quick = spec_of(tmp_path, measurement={"window_s": 1})
    found = [SIMULATED, QUICK, *caveats(quick, RECORDS, interrupted="ended by SIGTERM")]
    text = render_markdown({"not_covered": found})
    assert text.count("\n> ") == 1 + len(set(found))


def test_a_simulated_engine_is_never_left_unsaid() -> None:
    text = render_markdown({"provenance": {"engines": {"a": {"simulated": True}}}})
    assert "> [!WARNING]\n> Simulated engine\n" in text


def test_what_is_not_covered_is_folded_away(tmp_path: Path) -> None:
    text = render_markdown(report_of(tmp_path))
    assert re.search(r"<details>\n<summary>Not covered \(\d+\)</summary>\n\n- .*\n\n</details>", text, re.DOTALL)


def test_the_last_line_says_where_it_comes_from_and_where_all_of_it_is(tmp_path: Path) -> None:
    last = render_markdown(report_of(tmp_path), full="runs/a_b/report.html").splitlines()[-1]
    assert last.startswith("pytest-tokenwatt 0.1.0 · vLLM 0.31.0 · Qwen3-30B-A3B-FP8 · 1 × NVIDIA H100 80GB HBM3")
    assert "driver 580.105.08 · 2026-10-06T12:00:00+00:00 · spec " in last
    assert last.endswith("<br>Full report: runs/a_b/report.html")


@pytest.mark.parametrize(
    ("words", "markdown"),
    [
        ("a|b", "a&#124;b"),
        ("x @team y", f"x @{APART}team y"),
        ("a@b.org", f"a@{APART}b.org"),
        ("fixes #12", rf"fixes \#{APART}12"),
        ("GH-12", f"GH-{APART}12"),
        ("https://github.com/a/b/issues/1", f"https:{APART}//github.com/a/b/issues/1"),
        ("see _www.a.org", rf"see \_www{APART}.a.org"),
        (":100: and :smile:", f":{APART}100: and :{APART}smile:"),
        ("2026-10-06T12:00:00+00:00", "2026-10-06T12:00:00+00:00"),
        ("<!-- x --><script>", "&lt;!-- x --&gt;&lt;script&gt;"),
        ("costs $5 or $6", "costs <span>$</span>5 or <span>$</span>6"),
        ("kv_cache_dtype", "kv_cache_dtype"),
        ("_a_ **b** ~~c~~ [d](e)", r"\_a\_ \*\*b\*\* \~\~c\~\~ \[d\](e)"),
        ("a\nb\r\n\x1b[2J\u2028c", r"a b \[2J c"),
        ("1. one", r"1\. one"),
        ("- one", r"\- one"),
        ("-1.0 pt", "-1.0 pt"),
        ("39.8 ms", "39.8 ms"),
    ],
)
def test_foreign_words_stay_words(words: str, markdown: str) -> None:
    assert escaped(words) == markdown


def test_long_words_are_cut_between_entities() -> None:
    assert escaped("&&&&", 11) == "&amp;&amp;…"
    assert escaped("abc", 3) == "abc"


def test_a_fence_is_longer_than_those_inside_it() -> None:
    assert fenced("a\n````\n</details>", 99) == ["`````", "a", "````", "</details>", "`````"]
    assert fenced("abcdef", 3) == ["```", "abc", "…", "```"]


hostile = st.text(st.sampled_from("ab1 |`*_~[]()<>&@#$:/\\\n\r\t!-+=.\"'\x1b\u202e\ud800日"), max_size=30)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile, hostile, hostile, hostile)
def test_foreign_words_break_no_table_and_ping_nobody(config: str, name: str, reason: str, label: str) -> None:
    hostile_gate = {
        "id": "x",
        "config": config,
        "gate": name,
        "verdict": "fail",
        "value": 1.0,
        "unit": reason,
        "reasons": [{"code": name, "text": reason}],
    }
    report = {
        "title": label,
        "summary": reason,
        "gates": [hostile_gate] * 2,
        "configs": [{"key": config, "label": label, "engine": reason or "x", "goodput_tok_s": 1.0}],
        "not_covered": [reason],
        "reproduce": f"a\n{reason}\nb",
        "software": {"engine": label},
    }
    text = render_markdown(report, full=reason)
    gates, figures = cells(text)[:2]
    assert [len(row) for row in gates] == [5, 5, 5]
    assert {len(row) for row in figures} == {2}
    assert gates[1][0].replace("\u200b", "") == " ".join(one_line(config).split())
    assert gates[1][1].replace("\u200b", "") == " ".join(one_line(name).split())
    tokens = GFM.parse(text)
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [
        "<details>\n<summary>Not covered (1)</summary>",
        "</details>",
        "<details>\n<summary>How to repeat it</summary>",
        "</details>",
    ]
    children = [child for token in tokens for child in token.children or []]
    assert not {"link_open", "image", "code_inline", "em_open", "s_open"} & {child.type for child in children}
    prose = "\n".join(token.content for token in tokens if token.type == "inline")
    assert not re.search(r"@(?!&#8203;)|#(?!8203;|124;|92;|96;)(?=\d)|://", prose)
    text.encode()


def test_a_report_of_any_size_stays_below_what_a_comment_takes(tmp_path: Path) -> None:
    long = "long & <b> | words $ " * 400
    many = [
        gate(f"tuned{number}", long, Verdict.FAIL, value=1e300, reasons=(Reason("x", f"{number} {long}"),))
        for number in range(700)
    ]
    passing = [gate("tuned", f"rule[{number}]") for number in range(700)]
    report = report_of(tmp_path, [*passing, *many], title=long, summary=long, not_covered=[long] * 900)
    report["configs"] = [{**config, "label": long} for config in report["configs"] * 40]
    report["reproduce"] = long
    text = render_markdown(report, full=long)
    assert 20_000 < len(text) <= MOST_LETTERS
    for what in ("gates", "reasons", "rows", "lines"):
        assert re.search(rf"\*\d+ more {what} are left out here; the full report has them\.\*", text)
    assert "✅" not in text.split("### Why")[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_part_of_a_report_may_be_anything(data: st.DataObject) -> None:
    report = json.loads(json.dumps(PLAIN))
    place = report
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(json_values)
        break
    assert render_markdown(report).startswith("## ")


PLAIN = {
    "title": "t",
    "status": "draft",
    "summary": "s",
    "slo": {"ttft_p99_ms": 2000.0},
    "hardware": {"accelerator": "H100", "count": 1},
    "scenarios": {"default": {}, "rag": {"slo": {"ttft_p99_ms": 1.0}}},
    "configs": [
        {
            "key": "baseline",
            "goodput_tok_s": 4572.3,
            "ttft_p99_ms": 340.0,
            "intervals": {"ttft_p99_ms": {"low": 1.0, "high": None}, "speed": [1.0, 2.0]},
            "accuracy": [{"suite": "a", "score": 96.0, "delta_pts": 0.0, "interval_pts": [0.0, 1.0]}],
            "kl": {"kl": 0.1, "kl_se": 0.1, "validity": {"valid": False}},
            "scenarios": {"default": {}, "rag": {"rate_rps": 1.0}},
            "validity": {"valid": True, "reasons": []},
        }
    ],
    "not_covered": ["Quick mode: x"],
    "gates": [
        {"id": "a", "config": "b", "gate": "slo", "value": 1.0, "unit": "ms", "limit": 2.0, "verdict": "pass"},
        {"id": "a", "config": "b", "gate": "kl", "verdict": "fail", "reasons": [{"code": "x", "text": "y"}]},
    ],
    "provenance": {"versions": {"pytest-tokenwatt": "1"}, "hashes": {"spec_sha256": "ab"}, "engines": {"a": {}}},
    "reproduce": "pytest",
}


def test_an_empty_report_says_that_nothing_was_judged() -> None:
    assert render_markdown({}) == "## tokenwatt: no gate was judged\n"
