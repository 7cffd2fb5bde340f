"""Colours and marks. Figures are drawn in stand-ins that become variables of the page, and follow its theme."""

from __future__ import annotations

from dataclasses import dataclass

INK, SOFT, LINE, PAPER, LIMIT = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05"
PASS, FAIL, INVALID, BAND = "#0a0b06", "#0a0b07", "#0a0b08", "#0a0b09"
SERIES = ("#0a0b11", "#0a0b12", "#0a0b13", "#0a0b14", "#0a0b15", "#0a0b16")

VARIABLES = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    LIMIT: "var(--limit)",
    PASS: "var(--pass)",
    FAIL: "var(--fail)",
    INVALID: "var(--invalid)",
    BAND: "var(--band)",
    **{color: f"var(--s{number})" for number, color in enumerate(SERIES, start=1)},
}
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 2), (7, 2, 2, 2), (10, 3), (4, 1, 1, 1, 1, 1))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "\\\\\\", "xx", "++")


@dataclass(frozen=True, slots=True)
class Mark:
    """How one configuration looks everywhere: told apart by colour, dashes, marker and hatch alike."""

    number: int

    @property
    def color(self) -> str:
        """The stand-in that figures are drawn in."""
        return SERIES[self.number % len(SERIES)]

    @property
    def variable(self) -> str:
        """The page's own name of the colour."""
        return VARIABLES[self.color]

    @property
    def dashes(self) -> tuple[float, ...]:
        """On and off lengths in points; empty for a solid line."""
        return DASHES[(self.number + self._round) % len(DASHES)]

    @property
    def linestyle(self) -> tuple[float, tuple[float, ...]]:
        """The dashes as matplotlib takes them."""
        return (0, self.dashes)

    @property
    def marker(self) -> str:
        """Matplotlib's letter of the marker."""
        return MARKERS[(self.number + 2 * self._round) % len(MARKERS)]

    @property
    def hatch(self) -> str:
        """Matplotlib's hatch for areas."""
        return HATCHES[(self.number + self._round) % len(HATCHES)]

    @property
    def _round(self) -> int:
        """How often all colours were used up before."""
        return self.number // len(SERIES)
