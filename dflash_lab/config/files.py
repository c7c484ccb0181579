"""config.json on disk: read with its hash, written so that it cannot silently stay the old one, every version kept.

A save refuses rather than guesses: a folder that cannot be written, a full disk, a file that changed since it was
read, a link that leads out of its folder. Whatever happens before the one rename, the old file is untouched.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dflash_lab.access import access
from dflash_lab.errors import LabError
from dflash_lab.nesting import DEEPEST, too_deep
from dflash_lab.paths import data_dir

NAME = "config.json"
HISTORY = ".dflash-lab"  # beside the file, so that versions travel with the model folder
STAMP = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config.json as it was read: its bytes, their SHA-256, its time of change, and the JSON object in it."""

    path: Path
    data: bytes
    sha256: str
    mtime_ns: int
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """An earlier content of a file, kept when it was replaced at `when` (UTC)."""

    path: Path
    when: datetime
    sha256: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A verified save: the file as read back, and the version it replaced (None when nothing had to be written)."""

    file: ConfigFile
    previous: Version | None


def read(path: Path | str) -> ConfigFile:
    """Read a config.json, or the one in a folder. Raises `LabError` when it is missing or holds no JSON object."""
    path = Path(path).expanduser()
    path = path / NAME if path.is_dir() else path
    try:
        with path.open("rb") as stream:
            mtime = os.fstat(stream.fileno()).st_mtime_ns
            data = stream.read()
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}", "Give a model folder or its config.json") from error
    return ConfigFile(path, data, _sha256(data), mtime, parse(data, str(path)))


def parse(data: bytes | str, name: str = "The text") -> dict[str, Any]:
    """The JSON object in `data`, for pasted and uploaded files too. Raises `LabError` naming line and column."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:  # a JSONDecodeError says where; bad UTF-8 and huge numbers do not
        raise LabError(f"{name} is not JSON: {error}", "Correct it in an editor") from error
    if too_deep(raw):
        raise LabError(f"{name} nests deeper than {DEEPEST} levels", "Give a drafter's config.json")
    if not isinstance(raw, dict):
        raise LabError(f"{name} holds {type(raw).__name__}, not a JSON object", "Give a drafter's config.json")
    return raw


def changed_on_disk(file: ConfigFile) -> str:
    """What happened to the file since it was read, in a few words; empty when its content is the same."""
    try:
        data = file.path.read_bytes()
    except OSError as error:
        return f"cannot be read any more: {error.strerror}"
    if data == file.data:
        return ""
    return f"changed since it was read: sha256 {_sha256(data)[:12]} instead of {file.sha256[:12]}"


def save(file: ConfigFile, raw: dict[str, Any]) -> Saved:
    """Write `raw` in the file's own layout, read it back, compare; raises `LabError` and loses nothing otherwise.

    A file in the hub's cache is a link out of its folder: use `overlay` first.
    """
    try:
        text = json.dumps(raw, indent=_indent(file.data), ensure_ascii=file.data.isascii(), allow_nan=False)
    except ValueError as error:
        raise LabError(f"The config cannot be written as JSON: {error}", "Give finite numbers only") from error
    end = b"\n" if file.data.endswith(b"\n") else b""
    same = json.dumps(raw) == json.dumps(file.raw)  # not ==, to which 1 and true are one value
    return _replace(file, file.data if same else text.encode() + end)


def create(path: Path | str, raw: dict[str, Any]) -> ConfigFile:
    """Write a config.json where there is none yet, read back and compared like a save."""
    access().refuse_writes()
    path = Path(path).expanduser()
    if path.exists() or path.is_symlink():
        raise LabError(f"{path} is already there", "Save to it instead, or give another name")
    data = json.dumps(raw, indent=2).encode() + b"\n"
    try:
        _write(path, data)
    except OSError as error:
        raise _refusal(path, error) from error
    return _verified(path, data)


def versions(path: Path | str) -> list[Version]:
    """Earlier contents of a file, the newest first."""
    path = Path(path)
    found = []
    for kept in (path.parent / HISTORY).glob(f"{path.name}.*"):
        with contextlib.suppress(ValueError):
            when = datetime.strptime(kept.name.removeprefix(f"{path.name}."), STAMP).replace(tzinfo=UTC)
            found.append(Version(kept, when, _sha256(kept.read_bytes())))
    return sorted(found, key=lambda version: version.when, reverse=True)


def restore(file: ConfigFile, version: Version) -> Saved:
    """Put an earlier content back, byte for byte; the present one is kept as a version."""
    data = version.path.read_bytes()
    parse(data, str(version.path))
    return _replace(file, data)


def leads_out(path: Path) -> bool:
    """Whether the file is a link to somewhere outside its folder, as every file of the hub's cache is."""
    return not path.resolve().is_relative_to(path.parent.resolve())


def overlay(file: ConfigFile) -> ConfigFile:
    """The file's twin in the lab's data folder: a copy of the config, links to everything beside it.

    Made on first use and then kept, so that it can be a drafter of its own; the original is never written.
    """
    access().refuse_writes()
    source = file.path.parent.resolve()
    home = source.name
    if source.parent.name == "snapshots":  # the hub's cache: models--org--name/snapshots/revision
        home = source.parent.parent.name.removeprefix("models--")
    folder = data_dir() / "overlays" / f"{home}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:8]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for neighbour in source.iterdir():
            link = folder / neighbour.name
            if neighbour.name not in (file.path.name, HISTORY) and not link.is_symlink():
                link.symlink_to(neighbour.resolve())
        if not (folder / file.path.name).exists():
            _write(folder / file.path.name, file.data)
    except OSError as error:
        raise _refusal(folder, error) from error
    return read(folder / file.path.name)


def _replace(file: ConfigFile, data: bytes) -> Saved:
    access().refuse_writes()
    path = file.path
    if leads_out(path):
        raise LabError(
            f"{path} is a link to {path.resolve()}, outside its folder: a write would change another model's file",
            "Save to an overlay folder instead",
        )
    path = path.resolve()
    if reason := changed_on_disk(file):
        raise LabError(f"{path} {reason}", "Load it again, then repeat the edit: nothing was written")
    if data == file.data:
        return Saved(read(file.path), None)
    for place in (path.parent, path):
        if not os.access(place, os.W_OK):
            raise LabError(f"{place} is read-only: nothing was written", "Make it writable, or save to an overlay")
    previous = _kept(path, file.data)
    try:
        _write(path, data, like=path)
    except OSError as error:
        previous.path.unlink(missing_ok=True)
        raise _refusal(path, error) from error
    return Saved(_verified(file.path, data), previous)


def _kept(path: Path, data: bytes) -> Version:
    """Keep the present content before it is replaced."""
    when = datetime.now(UTC)
    kept = path.parent / HISTORY / f"{path.name}.{when.strftime(STAMP)}"
    try:
        kept.parent.mkdir(exist_ok=True)
        _write(kept, data)
    except OSError as error:
        raise _refusal(kept, error) from error
    return Version(kept, when, _sha256(data))


def _write(path: Path, data: bytes, like: Path | None = None) -> None:
    """All of it or nothing: temporary file in the same folder, fsync, rename, fsync of the folder."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if like is not None:
            shutil.copymode(like, temporary)
        else:
            os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with _opened(path.parent) as folder:
        os.fsync(folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _verified(path: Path, data: bytes) -> ConfigFile:
    """Read the file again and compare, field by field and byte by byte."""
    file = read(path)
    wanted = parse(data)
    differing = [key for key in {**wanted, **file.raw} if wanted.get(key, ...) != file.raw.get(key, ...)]
    if differing or file.data != data:
        fields = ", ".join(differing) or "none, only the bytes"
        raise LabError(
            f"{path} does not hold what was written; differing fields: {fields}",
            "Another program writes this file, or the disk fails: look before you go on",
        )
    return file


def _refusal(path: Path, error: OSError) -> LabError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return LabError(f"No room left to write {path}: the old file is untouched", "Free some space and save again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return LabError(
            f"{path.parent} is read-only ({error.strerror}): nothing was written",
            "Make it writable, or save to an overlay",
        )
    return LabError(f"{path} cannot be written: {error.strerror or error}", "The old file is untouched")


def _indent(data: bytes) -> int | None:
    """The file's own indentation, so that a save changes no line it need not."""
    found = re.match(rb"\s*\{\r?\n( +)", data)
    return len(found[1]) if found else None if b"\n" not in data.strip() else 2


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
