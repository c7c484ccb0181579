"""The config.json of a drafter's model page, to compare with the one at hand."""

from __future__ import annotations

from dflash_lab.config.files import NAME, ConfigFile, read


def published(repo: str, revision: str = "main") -> ConfigFile:
    """The file of `repo` at `revision`, from the hub or its cache. Raises `LabError` when it cannot be had."""
    from huggingface_hub import hf_hub_download

    from dflash_lab.sources import hub_errors

    with hub_errors(repo, revision):
        path = hf_hub_download(repo, NAME, revision=revision)
    return read(path)
