"""What an engine's last words mean: the line that names the cause, and what to do about it."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """The log line that names a cause, and its remedy when the cause is a frequent one."""

    line: str
    remedy: str | None


_KNOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "out of memory",
            "OutOfMemoryError",
            "No available memory for the cache blocks",
            "less than desired GPU memory utili[sz]ation",
            "(Cannot|can't) allocate memory",
        ),
        "see with nvidia-smi what else holds memory, or lower --gpu-memory-utilization, --max-model-len or the batch",
    ),
    (
        (
            "max(imum)? (seq|model) len.{0,80}larger than",
            "KV cache (is )?needed.{0,80}larger than",
            "max_model_len .{0,40}is greater than the derived",
        ),
        "lower --max-model-len, or give the KV cache more memory",
    ),
    (
        ("[Aa]ddress already in use", "EADDRINUSE"),
        "stop what listens on that port, or let the command use {port}",
    ),
    (
        (
            "unrecogni[sz]ed arguments?",
            "[Nn]o such option",
            "unexpected argument",
            "invalid choice",
            "the following arguments are required",
            "expected (one|at least one) argument",
        ),
        "check engine.command and engine.args against this engine version's --help",
    ),
    (
        ("gated repo", "401 Client Error", "[Ii]nvalid user token"),
        "export HF_TOKEN of an account with access",
    ),
    (
        (
            "not a valid model identifier",
            "Repository Not Found",
            "does not appear to have a file named",
            "Can't load (the )?(model|config|tokenizer)",
            "Invalid repository ID",
            "HFValidationError",
            "LocalEntryNotFoundError",
            "[Nn]o such model",
            "couldn't connect to 'https?://huggingface",
        ),
        "check model.path and engine.model: a directory holds config.json, a hub id needs network or a filled cache",
    ),
    (
        ("No module named",),
        "run the engine with the interpreter that it is installed for: give engine.command the full path",
    ),
    (
        ("cannot open shared object file",),
        "put the library's folder into LD_LIBRARY_PATH (inherited, or in engine.env)",
    ),
    (
        (
            "No CUDA GPUs are available",
            "no NVIDIA driver",
            "NVIDIA driver on your system is too old",
            "CUDA driver version is insufficient",
            "Failed to infer device type",
        ),
        "check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    (("No space left on device",), "free disk space (also /dev/shm and the model cache)"),
    (
        ("PackageNotFoundError", "No package metadata was found"),
        "start it as a module (python -m), or repair its installation",
    ),
    (("[Pp]ermission denied", "EACCES"), "give this user access to the file or device that the log names"),
    (("command not found", "No such file or directory"), "check the path of the program and of its files"),
)
_PATTERNS = tuple((re.compile("|".join(patterns)), remedy) for patterns, remedy in _KNOWN)
_EXCEPTION = re.compile(r"\b\w*(Error|Exception|error): \S|^Value error, ")
# Where a line of vLLM comes from: (Worker pid=64) ERROR 11-30 14:38:37 [multiproc_executor.py:953]
_ORIGIN = re.compile(r"^\(\w+ pid=\d+\)\s+(?:ERROR [\d-]+ [\d:]+ \[[^]]*\]\s*)?")
# Levels below an error, lines of a traceback's code, and exceptions that only point at another one.
_NO_CAUSE = re.compile(
    r"\b(DEBUG|INFO|WARNING|UserWarning|FutureWarning|DeprecationWarning)\b|^raise \w|^File \"|[Rr]oot cause above"
)
_CODES = {
    126: "the program is not executable",
    127: "the shell did not find the command",
}
_SIGNALS = {
    "SIGKILL": "often the kernel's out-of-memory killer: see dmesg or the container's memory limit",
    "SIGSEGV": "a crash in native code: check driver and library versions",
    "SIGILL": "this CPU lacks an instruction that the build needs",
    "SIGBUS": "often a full /dev/shm: raise --shm-size or --ipc=host",
}


def find_cause(lines: Sequence[str]) -> Cause | None:
    """The cause in a log's lines: the first line of a known kind in the order of the table, else the last exception."""
    plain = (_ORIGIN.sub("", line).strip() for line in lines)
    telling = [line for line in plain if not _NO_CAUSE.search(line)]
    for pattern, remedy in _PATTERNS:
        for line in telling:
            if pattern.search(line):
                return Cause(line, remedy)
    raised = [line for line in telling if _EXCEPTION.search(line)]
    return Cause(raised[-1], None) if raised else None


def ending(code: int) -> str:
    """How a process ended, in words, with what that often means; ``code`` is negative for a signal."""
    # A shell reports a child that a signal ended as 128 + its number.
    number = -code if code < 0 else code - 128 if 128 < code < 128 + 65 else 0
    try:
        name = signal.Signals(number).name if number else None
    except ValueError:
        name = None
    what = f"exit code {code}" if code >= 0 else f"signal {name or number}"
    hint = _SIGNALS.get(name or "") or _CODES.get(code)
    return f"{what} ({hint})" if hint else what
