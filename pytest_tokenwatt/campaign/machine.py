"""What is known of one engine start besides its answers: accelerators, its start-up log, its weights, its precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.modelfiles import model_folders
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.geometry.checkpoint import Checkpoint, loaded_weights, read_checkpoint
from pytest_tokenwatt.geometry.precision import on_boards, read_precision
from pytest_tokenwatt.records import Reason, SensorInfo
from pytest_tokenwatt.records.profiles import Precision, Startup
from pytest_tokenwatt.spec.model import Configuration


@dataclass(frozen=True, slots=True)
class Machine:
    """``weights`` is their size in GiB and where it was read (``log`` or ``checkpoint``); ``None``: unknown."""

    gpus: tuple[SensorInfo, ...] = ()
    startup: Startup = field(default_factory=Startup)
    precision: Precision = field(default_factory=Precision)
    weights: tuple[float, str] | None = None

    def on(self, gpus: Sequence[SensorInfo]) -> Machine:
        """The same with the accelerators that were found since, and what they cannot compute."""
        precision = on_boards(self.precision, [gpu.name for gpu in gpus])
        return replace(self, gpus=tuple(gpus), precision=precision)


def look_at(configuration: Configuration, engine: RunningEngine, session: Session) -> Machine:
    """Read the engine's log and the checkpoint's headers; nothing is asked of the engine."""
    startup = engine.startup
    checkpoint = read_checkpoint(_folders(configuration, engine, session))
    precision = read_precision(
        checkpoint,
        cache_config=engine.identity.cache_config,
        startup=startup,
        start_args=engine.identity.start_args,
        declared=configuration.precision,
    )
    return Machine(startup=startup, precision=precision, weights=_weights(startup, checkpoint, precision))


def _weights(startup: Startup, checkpoint: Checkpoint, precision: Precision) -> tuple[float, str] | None:
    """The engine's own figure, else the bytes that it must have loaded."""
    if startup.weights_gib is not None:
        return startup.weights_gib, "log"
    found = loaded_weights(checkpoint, precision)
    return None if isinstance(found, Reason) else found


def _folders(configuration: Configuration, engine: RunningEngine, session: Session) -> list[Path]:
    model, root = configuration.model, engine.identity.root
    names = (model.path, configuration.engine.model, root)
    return list(model_folders(model.config, names, session.spec.path.parent, session.environ))
