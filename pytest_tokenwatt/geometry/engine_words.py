"""What an engine itself says of its types: in its start-up log, its metrics, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_tokenwatt.records.profiles import Startup

LOG, METRICS, ARGUMENTS = "start-up log", "cache_config_info", "start-up arguments"


@dataclass(frozen=True, slots=True)
class Said:
    """One setting as the engine puts it, and where it says so."""

    text: str
    where: str


@dataclass(frozen=True, slots=True)
class EngineWords:
    """Labels of ``vllm:cache_config_info``, the start-up log, and arguments by name or ``section.name``."""

    cache_config: Mapping[str, str]
    startup: Startup
    start_args: Mapping[str, str]

    def dtype(self) -> Said | None:
        """The model's own type; ``None`` when it is not said, or left to the checkpoint."""
        return self._chosen(Said(text, LOG) if (text := self.startup.dtype) else None, self._argument("dtype"))

    def quantization(self) -> Said | None:
        """The method of quantisation, which may be ``None`` in words."""
        logged = self.startup.quantization
        return self._argument("quantization") if logged is None else Said(logged, LOG)

    def cache_type(self) -> Said | None:
        """The type of the KV cache; ``auto`` when nothing says more."""
        logged, served = self.startup.kv_cache_dtype, self.cache_config.get("cache_dtype")
        asked = self.start_args.get("cache_config.cache_dtype", self.start_args.get("kv_cache_dtype"))
        # What stands in the log may itself be from the metrics, where there is no log.
        told = [Said(text, where) for text, where in ((served, METRICS), (logged, LOG), (asked, ARGUMENTS)) if text]
        return self._chosen(*told) or next(iter(told), None)

    def _argument(self, name: str) -> Said | None:
        text = self.start_args.get(f"model_config.{name}", self.start_args.get(name))
        return None if text is None else Said(text, ARGUMENTS)

    @staticmethod
    def _chosen(*told: Said | None) -> Said | None:
        return next((said for said in told if said is not None and said.text != "auto"), None)
