"""Where things are kept: samples in the checkout, downloads in the cache, the user's work in the data."""

import os
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

SAMPLES = Path(__file__).resolve().parent.parent / "sample_configs"


def cache_dir() -> Path:
    """Folder for what can be made again, not created here; `DFLASH_LAB_CACHE` overrides the platform's."""
    return Path(os.environ.get("DFLASH_LAB_CACHE") or user_cache_path("dflash-lab")).expanduser()


def data_dir() -> Path:
    """Folder for experiments and overlays, not created here; `DFLASH_LAB_DATA` overrides the platform's."""
    return Path(os.environ.get("DFLASH_LAB_DATA") or user_data_path("dflash-lab")).expanduser()


def store_file() -> Path:
    """The notebook's database, not created here; `DFLASH_LAB_STORE` overrides the data folder's."""
    return Path(os.environ.get("DFLASH_LAB_STORE") or data_dir() / "notebook.db").expanduser()


def writable(folder: Path) -> bool:
    """Whether files can be made in ``folder``, or it in its nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def write_whole(path: Path, text: str) -> Path:
    """Write a text file whole or not at all, its folder made when missing; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path
