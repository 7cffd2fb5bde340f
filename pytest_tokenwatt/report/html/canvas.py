"""From a drawing to SVG inside a page: themed by the page, with real text, and with words for what it shows."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.palette import INK, LINE, SOFT, VARIABLES
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.words import clean, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Paint = Callable[[Sequence[Axes]], None]

WIDTH_IN = 5.0
"""Narrow enough that letters stay legible when a phone scales the figure down."""
MOST_LETTERS = 26

_PROLOG = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_ROOT = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")
_METADATA = re.compile(r"<metadata>.*?</metadata>|<style type=\"text/css\">.*?</style>", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ID = re.compile(r"(<[a-zA-Z][^<>]*?) id=\"([^\"]*)\"")
_REFERENCE = re.compile(r"(?:url\(#|href=\"#)([^)\"]+)")
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_FONT = re.compile(r"font: ([0-9.]+px)[^;\"]*")
_GAP = re.compile(r">\s*\n\s*<")
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.titlecolor": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.grid.axis": "both",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.7,
    "path.simplify": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def draw(
    name: str, title: str, description: str, caption: str, paint: Paint, heights_in: Sequence[float] = (3.1,)
) -> Picture:
    """Let ``paint`` fill axes that stand below each other, one for each height. ``name`` is unique on the page.

    ``description`` says in words what the figure shows. Labels are drawn as they come: no mathematics is read in them.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {**_SETTINGS, "svg.hashsalt": name}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The letters are the reader's own; those that our measuring font lacks are measured a little wrong, no more.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH_IN, sum(heights_in)), layout="constrained")
        ratios = {"height_ratios": list(heights_in)}
        grid = figure.subplots(len(heights_in), 1, sharex=True, squeeze=False, gridspec_kw=ratios)
        paint(list(grid[:, 0]))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return Picture(name, _inline(buffer.getvalue(), name, title, description), caption)


def note(axes: Axes, words: str, place: tuple[float, float], shift_pt: tuple[float, float], **look: Any) -> None:
    """Words beside a place, ``shift_pt`` points away from it."""
    look = {"fontsize": 10, "color": INK, **look}
    axes.annotate(words, place, xytext=shift_pt, textcoords="offset points", annotation_clip=False, **look)


def label(text: str) -> str:
    """A name from outside as a figure can hold it: one short line."""
    return shortened(" ".join(clean(text).split()), MOST_LETTERS)


def _inline(svg: str, name: str, title: str, description: str) -> str:
    """The drawing as part of a page: no ids but those it refers to, no rules for the rest of the page."""
    body = _COMMENT.sub("", _METADATA.sub("", _PROLOG.sub("", svg, count=1)))
    for stand_in, variable in VARIABLES.items():
        body = body.replace(stand_in, variable)
    used = set(_REFERENCE.findall(body))
    body = _ID.sub(lambda found: found[0] if found[2] in used else found[1], body)
    body = _FONT.sub(r"font-size: \1", _FAMILY.sub("", body)).replace("xlink:href", "href")
    body = _GAP.sub("><", body)
    words = f'<title id="{name}-t">{_escaped(title)}</title><desc id="{name}-d">{_escaped(description)}</desc>'
    root = f'<svg class="chart" role="img" aria-labelledby="{name}-t {name}-d" viewBox="\\1">'
    return clean(_ROOT.sub(lambda found: root.replace("\\1", found[1]) + words, body, count=1))


def _escaped(text: str) -> str:
    return html.escape(clean(text))
