"""The record of one configuration while it grows, and its place on disk."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.spec.model import Configuration
from pytest_tokenwatt.store.records_json import write_record


def blank_record(configuration: Configuration) -> ConfigRecord:
    """A record without any measurement."""
    return ConfigRecord(
        key=configuration.key,
        role=configuration.role,
        label=configuration.label or configuration.key,
        like=configuration.like,
        identity=None,
        fingerprint=None,
        contract=None,
        scenarios={},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
    )


class Ledger:
    """What is known of a configuration so far; ``store`` writes ``record-<key>.json``."""

    def __init__(self, configuration: Configuration, session: Session) -> None:
        self.configuration = configuration
        self.session = session
        self.record = replace(blank_record(configuration), spec=session.spec.raw)

    def note(self, **changes: Any) -> None:
        """Replace fields of the record; it is not stored yet."""
        self.record = replace(self.record, **changes)

    def take(self, record: ConfigRecord) -> None:
        """Replace the whole record, and store it."""
        self.record = record
        self.store()

    def took(self, name: str, began_s: float) -> None:
        """Note the minutes since ``began_s`` (monotonic seconds) under ``name``."""
        self.note(minutes={**self.record.minutes, name: (time.monotonic() - began_s) / 60.0})

    def took_earlier(self, earlier: ConfigRecord, name: str) -> None:
        """What was kept cost its minutes in the interrupted run."""
        if name in earlier.minutes:
            self.note(minutes={**self.record.minutes, name: earlier.minutes[name]})

    def store(self) -> None:
        """Write the record, with the logs that are there by now."""
        key, run_dir = self.configuration.key, self.session.run_dir
        logs = (f"{name}-{key}.log" for name in ("engine", "load"))
        self.note(files=tuple(log for log in logs if run_dir.file(log).exists()))
        write_record(run_dir.file(f"record-{key}.json"), self.record)
