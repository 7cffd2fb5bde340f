"""Lines of vLLM's start-up log, in the forms that its versions have used, as named figures of each process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pytest_tokenwatt.engine.logtail import without_escapes
from pytest_tokenwatt.engine.startargs import top_level_parts
from pytest_tokenwatt.engine.startup_kernels import HINT, kernels_of

_NUMBER = r"-?\d[\d,]{0,20}(?:\.\d{0,12})?"
# What versions before 1.0 of its engine call GB is 2**30 bytes, too. A figure that stands in several lines of a process
# is the last one's: later lines are more exact.
_FIGURES = (
    r"Model loading took <weights> Gi?B(?: memory)? and <load_s> s",
    r"Loading model weights took <weights> Gi?B",
    r"Loading weights took <read_s> s",
    r"model weights take +<weights> ?GiB",
    r"non_torch_memory(?: takes)? +<non_torch> ?GiB",
    r"PyTorch activation peak memory(?: takes)? +<activation> ?GiB",
    r"memory reserved for KV Cache is <pool> ?GiB",
    r"available_kv_cache_memory +<pool> ?GiB",
    r"Memory profiling results: .*peak_torch_memory=<torch_peak> ?GiB",
    r"Memory profiling results: .*non_torch_memory=<non_torch> ?GiB",
    r"Memory profiling results: .*kv_cache_size=<pool> ?GiB",
    r"torch peak memory increase: <activation> ?GiB",
    r"non-torch forward increase memory: <non_torch> ?GiB",
    r"total consumed \(from mem_get_info\): <consumed> ?GiB",
    r"weights memory: <weights> ?GiB",
    r"Actual usage is <weights> GiB for weight",
    r"Actual usage is <consumed> GiB for consumed memory",
    r"<reserved_activation> GiB for peak activation",
    r"<non_torch> GiB for non-torch memory",
    r"<graphs> GiB for CUDAGraph memory",
    r"Estimated CUDA graph memory: <graph_estimate> GiB total",
    r"Graph capturing finished in .{1,20}, took <graph> GiB",
    r"Encoder graph capturing finished in .{1,20}, took <encoder_graph> GiB",
    r"Available KV cache memory: <pool> GiB",
    r"reserved <pool> GiB memory for KV Cache as specified",
    r"Explicitly set \(<pool>/[\d.]+\) GiB for KV cache",
    r"Auto set \(<pool>/[\d.]+\) GiB for KV cache",
    r"KV cache size: <tokens> tokens",
    r"# \w+ blocks: <blocks>",
    r"Maximum concurrency for <request_tokens> tokens per request: <sequences>x",
    r"init engine \([^)]{1,80}\) took <init_s> s",
)
_TEXTS = (
    r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[^)\s]{1,80})\) with config: (?P<config>.*)",
    r"vLLM API server version (?P<server_version>[\w.+!-]{1,80})",
    r"[█▀▄]\s+version (?P<server_version>\S{1,80})",
    r"Using (?P<kv_dtype>[\w.]{1,40}) data type to store kv cache",
    r"CUDA graph memory profiling is (?P<graph_profiling>enabled|disabled)",
    r"(?P<no_graphs>Skipping CUDA graph capture)",
    r"memory for KV Cache as specified by (?P<given_pool>\w{1,40})",
    r"(?P<given_pool>Explicitly set) \([\d./]+\) GiB for KV cache",
    r"(?P<device>CPU) KV cache size",
)
_FIGURE_FORMS = tuple(re.compile(form.replace("<", "(?P<").replace(">", f">{_NUMBER})"), re.ASCII) for form in _FIGURES)
_TEXT_FORMS = tuple(re.compile(form) for form in _TEXTS)
_HINT = re.compile(r"memory|GiB|took|KV cache|kv cache|blocks:|oncurrency|version|LLM engine|graph|" + HINT)
_PROCESS = re.compile(r"\((\w[^()]{0,80}\bpid=\d{1,10}[^()]{0,60})\)")
_PROCESS_WITHIN = 200
_REPEATED = re.compile(r"\[repeated (\d{1,5})x across cluster\]")
_START = re.compile(r"non-default args: |args: Namespace\(")
_SMALLEST = frozenset({"tokens", "sequences"})
"""Told once for each worker, in some versions by one process: the smallest of them holds for all."""


class Told:
    """What the processes of one engine start have told.

    ``texts`` are the last ones of all, ``kernels`` each once, as they were named first. Ray tells equal lines of
    several processes as one, with their number.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.kernels: list[str] = []
        self._figures: dict[str, dict[str, tuple[float, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._figures or self.texts or self.kernels)

    def take(self, line: str) -> None:
        """Add what one line tells, if anything."""
        repeated = _REPEATED.search(line)
        count = int(repeated.group(1)) if repeated else 1
        speaker = _speaker(line) + ("+" if repeated else "")
        for name, text in _groups(_FIGURE_FORMS, line):
            self._keep(name, speaker, float(text.replace(",", "")), count)
        self.texts.update(_groups(_TEXT_FORMS, line))
        self.kernels += [kernel for kernel in kernels_of(line) if kernel not in self.kernels]

    def _keep(self, name: str, speaker: str, number: float, count: int) -> None:
        by_speaker = self._figures.setdefault(name, {})
        if name in _SMALLEST and speaker in by_speaker:
            number = min(number, by_speaker[speaker][0])
        by_speaker[speaker] = number, count

    def started(self) -> bool:
        """Whether anything of an engine, and not only of the server before it, was told."""
        return bool(self._figures or self.kernels)

    def count(self, name: str) -> int:
        """How many processes told this figure."""
        return sum(count for _, count in self._figures.get(name, {}).values())

    def total(self, name: str) -> float | None:
        """The sum over the processes; ``None`` when none told it."""
        found = self._figures.get(name)
        return sum(number * count for number, count in found.values()) if found else None

    def largest(self, name: str) -> float | None:
        """The largest that a process told."""
        found = self._figures.get(name)
        return max(number for number, _ in found.values()) if found else None

    def setting(self, name: str) -> str | None:
        """A setting of the engine's configuration line."""
        return self._settings().get(name)

    def _settings(self) -> Mapping[str, str]:
        parts = (part.strip().partition("=") for part in top_level_parts(self.texts.get("config", "")))
        return {name: value for name, equals, value in parts if equals}


def read_lines(lines: Iterable[str]) -> Told:
    """What a log tells of the last engine start in it."""
    told = Told()
    for raw in lines:
        if _START.search(raw) and told.started():
            told = Told()
        elif _HINT.search(raw):
            told.take(without_escapes(raw))
    return told


def _groups(forms: Iterable[re.Pattern[str]], line: str) -> Iterator[tuple[str, str]]:
    for form in forms:
        match = form.search(line)
        if match:
            yield from match.groupdict().items()


def _speaker(line: str) -> str:
    """The innermost process that a line names in front; empty for the engine's own in older versions."""
    found = _PROCESS.findall(line[:_PROCESS_WITHIN])
    return str(found[-1]) if found else ""
