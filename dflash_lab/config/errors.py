"""The error of a config that cannot be used as it stands."""

from typing import Any

from dflash_lab.errors import LabError


class ConfigError(LabError):
    """`field` holds `value`, and that cannot run: `what` is wrong, and the `fix`."""

    def __init__(self, field: str, value: Any, what: str, fix: str = "") -> None:
        self.field = field
        self.value = value
        super().__init__(what, fix)
