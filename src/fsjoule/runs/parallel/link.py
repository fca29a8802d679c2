"""A board's process and its connection to the run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from fsjoule.errors import FsjouleError
from fsjoule.host import interrupts
from fsjoule.host.limits import of_system
from fsjoule.runs.parallel.messages import Crashed, Failed, Said

_WELL_S: Final = 10.0


@dataclass
class Link:
    """The connection to the run. Two threads send: a word that this process is well comes every few seconds."""

    connection: Connection[Any, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def send(self, message: object) -> None:
        with interrupts.shielded(), self._lock:  # half a message would end the conversation
            self.connection.send(message)

    def receive(self) -> Any:  # noqa: ANN401 - whatever the run sends
        """The next message; a signal ends the wait. Raises EOFError when the run is gone."""
        with interrupts.interruptible():
            return self.connection.recv()

    def say(self, text: str) -> None:
        self.send(Said(text))

    @contextmanager
    def well(self) -> Generator[None]:
        thread = threading.Thread(target=self._tell, name="well", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _tell(self) -> None:
        while not self._over.wait(_WELL_S):
            try:
                self.send(Said())
            except OSError:
                # The run is gone, perhaps killed: nobody wants the rest of the boot, and others want the board.
                os.kill(os.getpid(), signal.SIGTERM)
                return


def serve(work: Callable[[Link, str], None]) -> None:
    """The process `python -m MODULE FD LAB FOLDER`: do the work of a board with the lab of that name.

    Its temporary files, among them those of labgrid's connections by ssh, are in the folder, and end with it.
    Errors go to the run, which decides. The process ends at a signal, or when the run's process is gone.
    """
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    link = Link(connection)
    tempfile.tempdir = sys.argv[3]
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
        closing.callback(connection.close)
        closing.enter_context(interrupts.handled())
        closing.enter_context(redirect_stdout(sys.stderr))
        try:
            with link.well():
                work(link, sys.argv[2])
        except KeyboardInterrupt:
            return  # the run has no use for what is left
        except (EOFError, BrokenPipeError):
            return  # the run is gone
        except FsjouleError as error:
            link.send(Failed(error))
        except Exception as error:  # noqa: BLE001 - the run tells it as its own
            known = of_system(error)
            link.send(Crashed(traceback.format_exc()) if known is None else Failed(known))
