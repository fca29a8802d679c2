"""What keeps a page from being made, besides the errors of other rooms."""

from __future__ import annotations

from fsjoule.errors import ConfigError, FsjouleError, LabError, ResultError, StorageError


class MissingError(ConfigError):
    """There is no such page, run or series."""


class UnmadeError(LabError):
    """The page was not made, because of the time limit or the service's own processes. Its text is for readers."""

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what, transient=True, hint=hint)


class BugError(FsjouleError):
    """A bug, met while a page was made. It has the traceback, which is no reader's business."""

    def __init__(self, traceback: str) -> None:
        super().__init__("this is a bug in fsjoule")
        self.traceback = traceback

    @property
    def told(self) -> str:
        """What whoever started the service should see."""
        return f"{self.traceback}this is a bug in fsjoule; please report it, with the lines above"


def for_readers(error: FsjouleError, *, of_lab: bool) -> UnmadeError:
    """What readers are told of an index, or a lab, that cannot be read: without its address, its path or its user."""
    if of_lab:
        what = "the lab's coordinator does not answer, or its runs cannot be read"
    elif isinstance(error, ResultError):
        what = "the lab's index cannot be read: missing, damaged, not allowed, or of another version of fsjoule"
    elif isinstance(error, LabError) and not isinstance(error, StorageError):
        what = "the lab's index is held by a writer, or its server does not answer"
    else:
        what = "the lab's index cannot be opened"
    return UnmadeError(what, hint="try again later; whoever runs this service finds the reason in its log")
