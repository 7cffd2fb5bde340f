"""The page: what it says and in which order, that it stands alone, and that nothing in it can break out."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from html_samples import config, full_material, full_report, gate, kl, power, serving

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.report.html.material import Material
from pytest_tokenwatt.report.html.render import render_html, require_packages

HOSTILE = "<script>alert(1)</script> & \"'</title></style></svg> $\\frac{1}{0}$ \x00\x1b[31m\u202eevil\ud800"
VOID = {"meta", "link", "br", "path", "use"}
CHAPTERS = (
    *("verdicts", "summary", "rates", "latency", "power", "joules", "drift", "accuracy", "profiles", "audit"),
    *("coverage", "machine", "provenance", "spec"),
)
DRAWN = ("tokens_per_joule", "speeds", "peak_memory", "accuracy", "kl")


class Reader(HTMLParser):
    """Elements with their attributes, and the text of everything that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._within: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._within.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._within:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(full_report(), full_material())


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    return Reader(page)


def test_chapters_come_in_the_order_of_interest(read: Reader) -> None:
    assert tuple(each["id"] for each in read.all("section")) == CHAPTERS


def test_what_did_not_pass_comes_first_with_its_reasons_in_words(read: Reader) -> None:
    text = read.text[read.text.index("5 gates:") :]
    places = [text.index(words) for words in ("it dropped 8 points", "no probability", "within its error", "All gates")]
    assert places == sorted(places)
    assert "5 gates: 1 failed, 1 invalid, 1 inconclusive, 1 passed, 1 informational" in text
    for word in ("✗ fail", "⚠ invalid", "? inconclusive", "✓ pass", "– informational"):
        assert word in text


def test_a_gate_is_worded_as_in_the_terminal_where_that_is_known(read: Reader) -> None:
    assert "1.106 [0.94, 1.13]" in read.text
    assert "44.6 ms" in read.text
    assert "≤ 50 ms" in read.text


def test_the_same_report_gives_the_same_page(page: str) -> None:
    assert render_html(full_report(), full_material()) == page


def test_nothing_is_loaded_and_nothing_runs(page: str, read: Reader) -> None:
    assert {name for name, _ in read.elements}.isdisjoint(
        {"script", "img", "iframe", "object", "form", "base", "embed"}
    )
    references = [each[name] for _, each in read.elements for name in ("href", "src", "xlink:href") if name in each]
    assert all(reference.startswith(("#", "data:,")) for reference in references)
    assert all(found.startswith("url(#") for found in re.findall(r"url\([^)]*", page))
    assert "@import" not in page
    assert "@font-face" not in page
    policies = [each["content"] for each in read.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert not [name for _, each in read.elements for name in each if name.startswith("on")]


def test_tables_are_real_tables(page: str, read: Reader) -> None:
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(tables) > 10
    for table in tables:
        inside = Reader(table)
        assert inside.all("caption")
        assert {each["scope"] for each in inside.all("th")} <= {"col", "row"}
        widths = {len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)}
        assert len(widths) == 1
    assert Counter(each.get("class") for each in read.all("div"))["scroll"] == len(tables)


def test_every_figure_says_in_words_what_it_shows(page: str, read: Reader) -> None:
    names = [
        *("rate-0-ttft_p99_ms", "rate-0-tpot_p99_ms", "spread-0-ttft", "spread-0-tpot", "power-0", "power-1"),
        *("joules", "kl-1", "accuracy", "speed", "memory"),
    ]
    charts = re.findall(r'<svg class="chart" role="img" aria-labelledby="(\S+)-t \1-d".*?</svg>', page, re.DOTALL)
    assert charts == names
    for name in names:
        for part in ("title", "desc"):
            found = re.search(rf'<{part} id="{name}-{part[0]}">([^<]+)</{part}>', page)
            assert found is not None
            assert len(found[1]) > 10
    ids = [each["id"] for _, each in read.elements if "id" in each]
    assert len(ids) == len(set(ids))


def test_probes_are_told_apart_in_words_and_listed(read: Reader) -> None:
    assert "baseline: 3 probes, 1 pass, 1 fail, 1 invalid, highest passing rate 4 req/s." in read.text
    assert "All 6 probes as a table" in read.text
    assert "∞" in read.text


def test_captions_say_how_raw_data_were_condensed(read: Reader) -> None:
    assert "2,020 requests, 20 failed, so that the curve ends at 99.0 %" in read.text
    assert "at most 250 of its requests, the slowest among them" in read.text
    assert "band: smallest to largest reading in the bin; sums over sensors" in read.text


def test_hostile_text_stays_text() -> None:
    report = full_report()
    report["title"] = report["summary"] = report["reproduce"] = HOSTILE
    report["not_covered"] = report["configs"][1]["files"] = [HOSTILE]
    report["configs"][1] |= {"key": HOSTILE, "label": HOSTILE, "kl": kl(), "speeds": {HOSTILE: 1.4}}
    report["gates"][4] |= {"config": HOSTILE, "gate": HOSTILE, "reasons": [{"code": HOSTILE, "text": HOSTILE}]}
    report["spec"] = {"name": HOSTILE}
    made = render_html(report, Material(serving=(serving(HOSTILE, scenario=HOSTILE),), power=(power(HOSTILE),)))
    read = Reader(made)
    assert not read.all("script")
    assert "<script>alert(1)</script> & \"'</title></style></svg> $\\frac{1}{0}$" in read.text
    assert not re.search("[\x00\x1b\u202e\ud800]", made)
    made.encode("utf-8")


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"gates": [], "configs": []},
        {"configs": [{"key": "baseline"}], "gates": [gate("baseline", "slo", "invalid", value=None, reasons=[])]},
        {
            "configs": [
                config(
                    "a", "other", goodput_tok_s=None, tokens_per_joule=None, accuracy=[], peak_memory=None, speeds=None
                )
            ]
        },
    ],
    ids=["empty", "nothing judged", "only invalid", "partial"],
)
def test_partial_reports_have_no_figure_without_data(report: dict[str, Any]) -> None:
    read = Reader(render_html(report))
    assert not [each for each in read.all("svg") if each.get("class") == "chart"]
    assert "verdicts" in [each["id"] for each in read.all("section")]


def test_a_published_report_shows_what_it_stores() -> None:
    reference = {
        "title": "BF16 vs FP8 KV cache",
        "status": "draft",
        "accuracy": {"suite": "gsm8k-5shot", "threshold_pts": 1.0},
        "configs": [
            {
                "key": key,
                "goodput_tok_s": tok_s,
                "node_power_kw": 0.6,
                "accuracy": {"score": 96.0 + drop, "delta_pts": drop},
            }
            for key, tok_s, drop in (("baseline", 4572.3, 0.0), ("tuned", 5056.9, -8.0))
        ],
    }
    page = render_html(reference)
    read = Reader(page)
    assert re.findall(r'aria-labelledby="(\S+)-t', page) == ["accuracy"]
    assert "5,057 tok/s" in read.text
    assert "Line at limit: −1 points" in read.text
    assert "The report holds no probes" in read.text
    assert "single power readings are not stored" in read.text


def replaced(value: Any, other: Any) -> Iterator[Any]:
    """The report with each of its keys' values replaced, all of one depth at a time."""
    if isinstance(value, Mapping):
        yield dict.fromkeys(value, other)
        for key, inner in value.items():
            for changed in replaced(inner, other):
                yield {**value, key: changed}
    elif isinstance(value, list) and value:
        yield [other] * len(value)
        for changed in replaced(value[0], other):
            yield [changed, *value[1:]]


@pytest.mark.parametrize("other", [None, "text", -1, float("nan"), [], {}, [None], {"x": "y"}], ids=repr)
def test_values_of_any_type_are_read_around(other: Any) -> None:
    report = full_report()
    undrawn = {name: value for name, value in report["configs"][1].items() if name not in DRAWN}
    for changed in replaced({**report, "configs": [{**undrawn, "kl": {**kl(), "histogram": None}}]}, other):
        render_html(changed)
    for block in DRAWN:
        render_html({"configs": [{**undrawn, block: other}]})
    for name in ("bins", "counts"):
        histogram = {**kl()["histogram"], name: other}
        render_html({"configs": [{"key": "tuned", "kl": {**kl(), "histogram": histogram}}]})


def test_missing_packages_are_told_in_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    require_packages()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        render_html(full_report())
    assert str(caught.value) == "an HTML report needs matplotlib; pip install 'pytest-tokenwatt[report]'"
