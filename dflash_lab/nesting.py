"""How deep JSON from outside nests: what recursion could not follow is refused before anything tries."""

from __future__ import annotations

from typing import Any

DEEPEST = 100
"""Levels that are allowed; an experiment's own file has nine, a config three."""


def too_deep(data: Any) -> bool:
    """Whether JSON data nests deeper than DEEPEST levels; looks without recursion."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            return True
        level = [inner for value in level for inner in _inside(value)]
    return False


def _inside(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, dict | list)]
