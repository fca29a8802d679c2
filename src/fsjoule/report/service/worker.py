"""A worker process: `python -m fsjoule.report.service.worker FD`. It gets the settings, then makes pages for jobs."""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any, Final

from fsjoule.errors import FsjouleError
from fsjoule.report.service.errors import BugError

READY: Final = "ready"


def work(connection: Connection[Any, Any]) -> None:
    """Answer jobs until the other end is gone."""
    from fsjoule.report.service.making import Maker  # noqa: PLC0415 - charts and numerics take their time

    maker = Maker(connection.recv())
    connection.send(READY)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            answer: object = maker.make(job)
        except FsjouleError as error:
            answer = error
        except Exception:  # noqa: BLE001 - the service goes on, and tells
            answer = BugError(traceback.format_exc())
        connection.send(answer)


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
