"""What all phases of one run share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.campaign.capture import CaptureShelf
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.outputs import OutputShelf
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.rundir import RunDirectory


@dataclass(frozen=True, slots=True)
class Session:
    """The spec, the place of the files and the voice of one run.

    ``salt`` is drawn once a run; ``environ`` is the environment that engines inherit. ``shelf`` has the suites.
    ``earlier`` are the records of the interrupted run that this one continues, by configuration; ``None``: it
    continues none. ``captures`` holds what the baseline was captured on, for the candidates;
    ``outputs`` what was served while it was timed, for the audit.
    """

    spec: Spec
    run_dir: RunDirectory
    journal: Journal
    run_id: str
    salt: int
    deadline: Deadline
    environ: Mapping[str, str]
    say: Callable[[str], None]
    shelf: Shelf
    earlier: Mapping[str, ConfigRecord] | None = None
    captures: CaptureShelf = field(default_factory=CaptureShelf)
    outputs: OutputShelf = field(default_factory=OutputShelf)

    @property
    def resumed(self) -> bool:
        """Whether this run continues an interrupted one."""
        return self.earlier is not None

    def prompt_salt(self, config: str) -> int:
        """Makes prompts that neither an earlier run nor another configuration on the same server has sent."""
        digest = hashlib.blake2b(f"{self.salt}/{config}".encode(), digest_size=7).digest()
        return int.from_bytes(digest, "little")
