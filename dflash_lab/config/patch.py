"""Differences between configs: RFC 6902 patches to store and re-apply, and a table of fields to look at."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from dflash_lab.config.errors import ConfigError
from dflash_lab.config.schema import FIELDS, DrafterConfig
from dflash_lab.errors import LabError

Patch = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field, or one other key, that two configs do not share; None stands for absent."""

    field: str
    here: Any
    there: Any


def diff(before: dict[str, Any], after: dict[str, Any]) -> Patch:
    """The RFC 6902 patch that turns `before` into `after`. Lists are replaced whole: they are read as one value."""
    patch: Patch = []
    _diff(before, after, "", patch)
    return patch


def apply(patch: Patch, raw: dict[str, Any]) -> dict[str, Any]:
    """`raw` patched, in a copy; works on another drafter's config too. Raises `LabError` naming what does not fit."""
    import jsonpatch
    from jsonpointer import JsonPointerException

    try:
        out = jsonpatch.JsonPatch(patch).apply(copy.deepcopy(raw))
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError, ValueError) as error:
        raise LabError(
            f"The patch does not fit this config: {error}", "Make it from a config of the same dialect"
        ) from error
    if not isinstance(out, dict):
        raise LabError("The patch leaves no JSON object", "Patch fields, not the whole file")
    return out


def compare(here: dict[str, Any], there: dict[str, Any]) -> list[Difference]:
    """What two drafters' configs say differently, by field whatever their dialects, other keys after.

    When one of them cannot be read, by key as written.
    """
    try:
        ours, theirs = DrafterConfig.from_json(here), DrafterConfig.from_json(there)
    except ConfigError:
        return _differing(here, there)
    found = [
        Difference(name, getattr(ours, name), getattr(theirs, name))
        for name in FIELDS
        if name != "rope_theta" and getattr(ours, name) != getattr(theirs, name)
    ]
    if ours.dialect != theirs.dialect:
        return [Difference("dialect", ours.dialect, theirs.dialect), *found]
    return found + _differing(ours.extra, theirs.extra)


def _differing(here: dict[str, Any], there: dict[str, Any]) -> list[Difference]:
    keys = [key for key in {**here, **there} if here.get(key, ...) != there.get(key, ...)]
    return [Difference(key, here.get(key), there.get(key)) for key in keys]


def _diff(before: dict[str, Any], after: dict[str, Any], at: str, patch: Patch) -> None:
    for key in before.keys() - after.keys():
        patch.append({"op": "remove", "path": f"{at}/{_escaped(key)}"})
    for key, value in after.items():
        path = f"{at}/{_escaped(key)}"
        if key not in before:
            patch.append({"op": "add", "path": path, "value": copy.deepcopy(value)})
        elif isinstance(value, dict) and isinstance(before[key], dict):
            _diff(before[key], value, path, patch)
        elif value != before[key] or type(value) is not type(before[key]):
            patch.append({"op": "replace", "path": path, "value": copy.deepcopy(value)})


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
