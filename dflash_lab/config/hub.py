"""The config.json of a drafter's model page, to compare with the one at hand."""

from __future__ import annotations

from dflash_lab.config.files import NAME, ConfigFile, read
from dflash_lab.errors import LabError


def published(repo: str, revision: str = "main") -> ConfigFile:
    """The file of `repo` at `revision`, from the hub or its cache. Raises `LabError` when it cannot be had."""
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(repo, NAME, revision=revision)
    except Exception as error:  # network, authorisation, unknown repository, offline mode: all end here
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LabError(
            f"The config of {repo} at {revision} cannot be had from the hub: {reason}",
            "Check name and network, or paste the file from the model's page",
        ) from error
    return read(path)
