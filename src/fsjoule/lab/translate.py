"""labgrid's exceptions become fsjoule's error tree here, and what may hang in labgrid gets a time limit."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import pexpect
import requests
from labgrid.binding import BindingError, StateError
from labgrid.driver.exception import ExecutionError
from labgrid.exceptions import InvalidConfigError, NoSupplierFoundError
from labgrid.util.managedfile import ManagedFileError
from serial import SerialException

from fsjoule.errors import LabError

_OUTPUT_TAIL: Final = 1000

_LABGRID: Final = (
    BindingError,
    ExecutionError,
    InvalidConfigError,
    ManagedFileError,
    NoSupplierFoundError,
    StateError,
    SerialException,
    requests.RequestException,
    pexpect.EOF,
    pexpect.TIMEOUT,
    ConnectionError,
    TimeoutError,
)


@contextmanager
def lab_errors(doing: str) -> Generator[None]:
    """Raise LabError (transient) with what was being done, for whatever labgrid raises in the body."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        output = (error.output or b"").decode(errors="replace").replace("\r", "\n").strip()[-_OUTPUT_TAIL:]
        what = f"{doing} failed: {' '.join(error.cmd)}: exit code {error.returncode}: {output}"
        raise LabError(what, transient=True) from error
    except _LABGRID as error:
        parts = [str(getattr(error, "msg", None) or error)]
        for output in (getattr(error, "stdout", None), getattr(error, "stderr", None)):
            parts += output or []
        raise LabError(f"{doing} failed: {': '.join(parts)}", transient=True) from error


@contextmanager
def time_limit(seconds: float, doing: str) -> Generator[None]:
    """Raise LabError (transient) if the body takes longer. labgrid's own calls to outlets and over ssh have no limit.

    It needs the main thread, where pytest and the command line run; elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise LabError(f"{doing} took longer than {seconds:.0f} s", transient=True)

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
