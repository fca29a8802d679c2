"""What keeps a page from being made, besides the errors of other rooms."""

from __future__ import annotations

from fsjoule.errors import ConfigError, FsjouleError, LabError


class MissingError(ConfigError):
    """There is no such page, run or series."""


class BusyError(LabError):
    """The page was not made within the time limit."""


class BugError(FsjouleError):
    """A bug, met while a page was made. It has the traceback, which is no reader's business."""

    def __init__(self, traceback: str) -> None:
        super().__init__("this is a bug in fsjoule")
        self.traceback = traceback

    @property
    def told(self) -> str:
        """What whoever started the service should see."""
        return f"{self.traceback}this is a bug in fsjoule; please report it, with the lines above"
