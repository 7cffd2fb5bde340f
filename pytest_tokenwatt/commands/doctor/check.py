"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at (``subject``), how it is, and what to do about it.

    ``needed``: without it no run works here; everything else costs a run only the part that the line names.
    """

    subject: str
    state: State
    says: str
    remedy: str | None = None
    needed: bool = False

    @property
    def stops(self) -> bool:
        """Whether it keeps a run from working."""
        return self.needed and self.state == "missing"

    def line(self, width: int) -> str:
        """One line, the subject padded to ``width`` letters."""
        told = " ".join(f"{self.says}; {self.remedy}".split() if self.remedy else self.says.split())
        return f"{self.state:<7}  {self.subject:<{width}}  {told}"
