"""Where a model's files may be on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def model_folders(
    config: str | None, names: Iterable[str | None], spec_dir: Path, environ: Mapping[str, str]
) -> list[Path]:
    """Directories that may hold the model's ``config.json``, the likeliest first; they need not exist.

    ``config`` is the path of that file; ``names`` are directories or hub ids. Relative paths start at ``spec_dir``, hub
    ids are looked up in the Hugging Face cache that ``environ`` names.
    """
    folders = [spec_dir / Path(config).expanduser().parent] if config else []
    for name in filter(None, names):
        folders += [spec_dir / Path(name).expanduser(), *_cached(name, environ)]
    return folders


def _cached(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Snapshots of a hub id in the Hugging Face cache, the one of ``main`` first."""
    home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    repository = Path(environ.get("HF_HUB_CACHE") or Path(home) / "hub") / f"models--{name.replace('/', '--')}"
    try:
        yield repository / "snapshots" / (repository / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return
