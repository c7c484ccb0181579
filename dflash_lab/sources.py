"""Where a model's files are: a folder, or a repository on the hub that is fetched once; config and headers first."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import errors

from dflash_lab.config.shapes import value_counts
from dflash_lab.errors import LabError

Report = Callable[[float, str], None]

# Weights as safetensors only: the other formats can hold code. A mask embedding is read without running any.
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model", "mask_embedding.pt"]


@dataclass(frozen=True, slots=True)
class Source:
    """A model's folder, or hub id and revision (None = the default branch) when it is not a folder here."""

    where: str
    revision: str | None = None

    @property
    def local(self) -> Path | None:
        """The folder, when it is one. Raises LabError for a path that is no folder."""
        path = Path(self.where).expanduser()
        if path.is_dir():
            return path
        if path.is_absolute() or self.where.startswith(("./", "../", "~")) or self.where.count("/") > 1:
            raise LabError(f"There is no folder {path}", "Correct the path, or give a hub id like owner/name")
        return None

    def config(self) -> dict[str, Any]:
        """The model's config.json; on the hub, only this file is fetched. Raises LabError."""
        if (local := self.local) is not None:
            return read_config(local)
        from huggingface_hub import hf_hub_download

        with hub_errors(self.where, self.revision):
            return read_config(Path(hf_hub_download(self.where, "config.json", revision=self.revision)).parent)

    def value_counts(self) -> Mapping[str, int]:
        """Number of values by stored dtype (safetensors names), from the headers alone. Raises LabError."""
        if (local := self.local) is not None:
            return value_counts(local)
        from huggingface_hub import get_safetensors_metadata, snapshot_download

        with hub_errors(self.where, self.revision):
            try:
                counts = get_safetensors_metadata(self.where, revision=self.revision).parameter_count
                return {str(dtype): count for dtype, count in counts.items()}
            except (errors.OfflineModeIsEnabled, httpx2.TransportError):
                return value_counts(snapshot_download(self.where, revision=self.revision, local_files_only=True))

    def folder(self, report: Report) -> tuple[Path, str]:
        """Folder and revision (commit or ``fingerprint``), fetched when it is not here.

        ``report(share, text)`` may raise to cancel.

        Raises LabError for whatever the hub or the disk can have against it.
        """
        if (local := self.local) is not None:
            return local, fingerprint(local)
        from huggingface_hub import constants, snapshot_download

        with hub_errors(self.where, self.revision):
            options: dict[str, Any] = {"revision": self.revision, "allow_patterns": PATTERNS}
            # The hub is asked first, since files there get replaced; the cache is second best.
            with contextlib.suppress(errors.DryRunError):
                plan = snapshot_download(self.where, dry_run=True, **options)
                missing = sum(file.file_size for file in plan if file.will_download)
                _check_disk(self.where, missing, Path(constants.HF_HUB_CACHE))
                options["tqdm_class"] = _reporting(self.where, missing, report)
            path = Path(snapshot_download(self.where, **options))
        return path, path.name


def fingerprint(folder: Path) -> str:
    """A folder's own revision: twelve hex digits of its files' names, sizes and times (hashing weights is slow)."""
    files = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    facts = [(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Raises LabError with line and column for broken JSON."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"{folder} has no config.json", "Point at a model folder") from None
    except (OSError, ValueError) as error:
        raise LabError(f"{path} is not valid JSON: {error}", "Correct it there") from error
    if not isinstance(raw, dict):
        raise LabError(f"{path} does not hold a JSON object", "Give the model's config.json")
    return raw


@contextlib.contextmanager
def hub_errors(repo: str, revision: str | None) -> Iterator[None]:
    """Turn what huggingface_hub raises into a LabError that says what to do."""
    try:
        yield
    except errors.GatedRepoError as error:
        raise LabError(
            f"{repo} is gated: the hub gives it only to accounts that accepted its licence",
            f"Accept it at https://huggingface.co/{repo}, then run `hf auth login`, or give a local folder",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise LabError(f"{repo} has no revision {revision!r} on the hub", "Correct the revision") from error
    except errors.RepositoryNotFoundError as error:
        raise LabError(
            f"There is no repository {repo} on the hub, or it is private",
            "Correct the name; for a private one run `hf auth login` first",
        ) from error
    except errors.NotASafetensorsRepoError as error:
        raise LabError(f"{repo} has no safetensors weights", "Take a repository that has them") from error
    except errors.HFValidationError as error:
        raise LabError(
            f"{repo!r} is neither a folder nor a hub id", "Give a folder, or a hub id like owner/name"
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise LabError(f"{repo} has no config.json on the hub", "Point at a model repository") from error
    except errors.HfHubHTTPError as error:
        raise _answered(repo, error) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        if isinstance(error.__cause__, errors.HfHubHTTPError):
            raise _answered(repo, error.__cause__) from error
        raise LabError(
            f"The hub cannot be reached, and {repo} is not in this machine's cache",
            "Connect to a network once, or give a local folder",
        ) from error


def _answered(repo: str, error: errors.HfHubHTTPError) -> LabError:
    status = getattr(error.response, "status_code", "an error")
    return LabError(f"The hub answered {status} for {repo}", "Try again later, or give a local folder")


def _check_disk(repo: str, missing: int, cache: Path) -> None:
    home = next(parent for parent in (cache, *cache.parents) if parent.exists())
    free = shutil.disk_usage(home).free
    if missing > free:
        raise LabError(
            f"{repo} needs {missing / 1e9:.1f} GB of disk, and {home} has {free / 1e9:.1f} GB free",
            "Free some space, or set HF_HOME to a folder on another disk",
        )


def _reporting(repo: str, missing: int, report: Report) -> type:
    """A progress bar for huggingface_hub that draws nothing and reports the bytes fetched so far."""
    from huggingface_hub.utils import tqdm

    most = 0

    class Reporting(tqdm):  # one for bytes received and one for bytes written: the one ahead is reported
        def __init__(self, *args: Any, **options: Any) -> None:
            self.bytes = options.get("unit") == "B"
            self.fetched = 0
            super().__init__(*args, **options | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal most
            if self.bytes:
                self.fetched += int(n or 0)
                if self.fetched > most and missing:
                    most = self.fetched
                    text = f"Fetching {repo}: {most / 1e9:.2f} of {missing / 1e9:.2f} GB"
                    report(min(1.0, most / missing), text)

    return Reporting
