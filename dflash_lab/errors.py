"""The one exception type whose text is meant for the person in front of the screen."""


class LabError(Exception):
    """Something the user can fix: `what` went wrong and the `fix`, each one clause without a final full stop.

    `str(error)` is "what. fix." and is shown as it is by the pages and by the command line.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what.rstrip(".")
        self.fix = fix.rstrip(".")
        super().__init__(what, fix)

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}." if self.fix else f"{self.what}."
