"""How much of its memory bandwidth a configuration uses: what the model reads, on which accelerator, how often."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_tokenwatt.campaign.observe import EdgeMetrics
from pytest_tokenwatt.campaign.power import gpu_count
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.metrics import growth
from pytest_tokenwatt.engine.modelfiles import model_folders
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.geometry.bandwidth import rated_bandwidth
from pytest_tokenwatt.geometry.config import load_geometry
from pytest_tokenwatt.metrics.decode import decode_work
from pytest_tokenwatt.metrics.mbu import engine_mbu, mbu
from pytest_tokenwatt.records import Figure, LoadRun, RatedBandwidth, SensorInfo
from pytest_tokenwatt.spec.model import Configuration

_STEPS = "vllm:iteration_tokens_total_count"
_READ = "vllm:estimated_read_bytes_per_gpu_total"


class BandwidthUse:
    """Memory bandwidth utilisation of one configuration; ``boards`` are the accelerators that are known."""

    def __init__(
        self, configuration: Configuration, engine: RunningEngine, session: Session, boards: Sequence[SensorInfo]
    ) -> None:
        self._gpus = len(boards) or gpu_count(configuration)
        self._ranks = configuration.model.replicas * configuration.model.data_parallel
        served = engine.identity.cache_config.get("cache_dtype")
        self._geometry = load_geometry(
            configuration.model,
            places=_places(configuration, engine, session),
            # What runs counts, not what was declared; an engine that chose by itself says auto.
            kv_dtype=served if served not in (None, "auto") else configuration.model.kv_dtype,
        )
        self.rated = _rated(session, boards, simulated=engine.identity.simulated)

    def figures(self, run: LoadRun, edges: EdgeMetrics) -> dict[str, Figure]:
        """``mbu_pct``, and ``mbu_engine_pct`` from what the engine itself estimates to read, over a run's windows."""
        seconds = sum(span.length_s for span in run.spans)
        work = decode_work(run.requests, run.spans)
        steps_per_s = _rate(edges, _STEPS)
        own = mbu(self._geometry, self.rated, self._gpus, work, steps_per_s, seconds, self._ranks)
        told = _rate(edges, _READ)
        # The exporter has one series a rank, each for one of its GPUs.
        engines = engine_mbu(None if told is None else told / self._ranks, self.rated)
        return {"mbu_pct": own, "mbu_engine_pct": engines}


def _rate(edges: EdgeMetrics, name: str) -> float | None:
    """Growth of a counter per second between the edges; ``None`` when it cannot be told."""
    before, after = edges.before, edges.after
    if before is None or after is None or before.problem or after.problem or edges.seconds <= 0:
        return None
    grown = growth(before, after).get(name)
    return None if grown is None else grown / edges.seconds


def _rated(session: Session, boards: Sequence[SensorInfo], *, simulated: bool) -> RatedBandwidth | None:
    """Of one accelerator; unlike ones have no common figure."""
    told = session.spec.hardware.rated_bw_tbs_per_gpu
    found = {
        rated_bandwidth(told, board.name, board.memory_gib, board.bandwidth_tbs, simulated=simulated)
        for board in boards
    }
    if not found:
        return rated_bandwidth(told, None, None, None)
    return found.pop() if len(found) == 1 else None


def _places(configuration: Configuration, engine: RunningEngine, session: Session) -> list[Path]:
    """Where the model's config.json may be: as named, in the model's directory, or where the engine says it has it."""
    model, root = configuration.model, engine.identity.root
    named = [session.spec.resolve(model.config)] if model.config else []
    names = (model.path, configuration.engine.model, root)
    return [*named, *model_folders(model.config, names, session.spec.path.parent, session.environ)]
