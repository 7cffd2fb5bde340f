"""The page in a real headless Chromium: shown, quiet, alone, and no wider than a phone."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

import pytest
from browser import Tab, chromium, with_tab
from html_samples import full_material, full_report

from pytest_tokenwatt.report.html.render import render_html

PROGRAM = chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed; tests/report/chromium.sh installs it"),
]

WIDTHS = {"desk": 1280, "phone": 360}
COLORS = (
    "(() => { const chart = document.querySelector('.chart text');"
    " return [getComputedStyle(document.body).backgroundColor, getComputedStyle(chart).fill]; })()"
)
WIDE = (
    "[...document.querySelectorAll('main *, header *')].filter(each => !each.closest('.scroll, pre, svg'))"
    ".filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML.slice(0, 80))"
)
SMALLEST_PX = (
    "Math.min(...[...document.querySelectorAll('.chart')].map(each =>"
    " 10 * each.getBoundingClientRect().width / each.viewBox.baseVal.width))"
)
CLIPPED = """
[...document.querySelectorAll('.chart')].flatMap(chart => {
  const box = chart.getBoundingClientRect();
  const outside = own => own.left < box.left - 2 || own.right > box.right + 2 || own.top < box.top - 2
    || own.bottom > box.bottom + 2;
  return [...chart.querySelectorAll('text')].filter(each => outside(each.getBoundingClientRect()))
    .map(each => each.textContent); })
"""
DISTINCT_COLORS = """
new Promise(done => { const image = new Image(); image.onload = () => {
  const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height;
  const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);
  const data = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  done(new Set(data).size); }; image.src = 'data:image/png;base64,%s'; })
"""


@dataclass
class Seen:
    """What the browser showed, by width and theme."""

    shots: dict[str, bytes] = field(default_factory=dict)
    colors: dict[str, list[str]] = field(default_factory=dict)
    overflow: dict[str, int] = field(default_factory=dict)
    wide: list[str] = field(default_factory=list)
    smallest_px: float = 0.0
    clipped: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    pdf: bytes = b""
    distinct: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(full_report(), full_material()), encoding="utf-8")

    async def look(tab: Tab) -> Seen:
        found = Seen()
        for device, width in WIDTHS.items():
            for theme in ("light", "dark"):
                name = f"{device} {theme}"
                await tab.size(width, 900, dark=theme == "dark", phone=device == "phone")
                await tab.open(path)
                found.overflow[name] = await tab.evaluate("document.documentElement.scrollWidth") - width
                found.wide += await tab.evaluate(WIDE)
                found.colors[name] = await tab.evaluate(COLORS)
                found.shots[name] = await tab.screenshot()
        found.smallest_px = await tab.evaluate(SMALLEST_PX)
        found.clipped = await tab.evaluate(CLIPPED)
        found.pdf = await tab.pdf()
        found.complaints = list(tab.complaints)
        found.requests = [url for url in tab.requests if url != path.as_uri()]
        assert len(found.requests) < len(tab.requests)
        for name, shot in found.shots.items():
            shown = base64.b64encode(shot).decode("ascii")
            found.distinct[name] = await tab.evaluate(DISTINCT_COLORS % shown)
        return found

    found: Seen = with_tab(str(PROGRAM), look)
    return found


def test_the_console_is_silent_and_nothing_is_asked_for(seen: Seen) -> None:
    assert seen.complaints == []
    assert seen.requests == []


def test_no_page_scrolls_sideways(seen: Seen) -> None:
    assert max(seen.overflow.values()) <= 0
    assert seen.wide == []


def test_letters_of_figures_stay_legible_on_a_phone(seen: Seen) -> None:
    assert seen.smallest_px >= 8


def test_no_word_of_a_figure_is_cut_off(seen: Seen) -> None:
    assert seen.clipped == []


def test_figures_follow_the_theme(seen: Seen) -> None:
    for device in WIDTHS:
        light, dark = (seen.colors[f"{device} {theme}"] for theme in ("light", "dark"))
        assert brightness(light[0]) > 0.9 > 0.4 > brightness(light[1])
        assert brightness(dark[0]) < 0.15 < 0.6 < brightness(dark[1])


def brightness(color: str) -> float:
    parts = [int(part) for part in re.findall(r"\d+", color)[:3]]
    return sum(parts) / (3 * 255)


def test_something_is_to_be_seen_in_every_shot(seen: Seen) -> None:
    assert len(seen.distinct) == 4
    assert min(seen.distinct.values()) > 100


def test_it_prints_on_several_pages(seen: Seen) -> None:
    assert seen.pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", seen.pdf)) <= 30
