"""labgrid's exceptions become fsjoule's error tree, and calls that may hang get a time limit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, cast

import grpc
import pexpect
import requests
from labgrid.binding import BindingError, StateError
from labgrid.driver.exception import ExecutionError
from labgrid.exceptions import InvalidConfigError, NoSupplierFoundError
from labgrid.util.managedfile import ManagedFileError
from serial import SerialException

from fsjoule.errors import FsjouleError, HostError, LabError, MissingToolError, Part, StorageError
from fsjoule.host.process_ref import ending

_OUTPUT_TAIL: Final = 1000
_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib")
_SITE_PACKAGES: Final = f"{os.sep}site-packages{os.sep}"
# Every error from these is the lab's. For example, labgrid raises KeyError for a missing exporter.
_PACKAGES: Final = ("labgrid", "serial", "pexpect", "grpc", "requests", "urllib3", "attr")
_LOOK_S: Final = 3.0

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
    grpc.RpcError,
    subprocess.TimeoutExpired,
    socket.gaierror,
    EOFError,
    ConnectionError,
    TimeoutError,
)


# These may come from the user's environment file.
_OF_FILE: Final = (BindingError, InvalidConfigError, NoSupplierFoundError)


@contextmanager
def lab_errors(doing: str, part: Part | None = None) -> Generator[None]:
    """Turn errors of labgrid in the body into a transient LabError: `doing` failed.

    `part` is the part of the lab at which it fails. A plain LabError of the body (a time limit) gets it, too.
    """
    try:
        yield
    except LabError as error:
        if type(error) is LabError and error.part is None:
            error.part = part
        raise
    except (StorageError, MissingToolError):
        raise
    except HostError as error:  # a program of this computer that speaks to the lab, such as ssh
        raise LabError(error.what, transient=error.transient, hint=error.hint, part=part) from error
    except FsjouleError:
        raise
    except Exception as error:
        if not is_lab_fault(error):
            raise
        failed = None if isinstance(error, _OF_FILE) else part
        raise LabError(f"{doing} failed: {_said(error)}", transient=True, part=failed) from error


def is_lab_fault(error: Exception) -> bool:
    """Whether the exception is the lab's: of a kind that only a lab raises, or raised inside labgrid.

    labgrid raises whatever it stumbles over: KeyError for a missing exporter, FileNotFoundError for a program or a
    port, AttributeError for a resource without an address.
    """
    known = isinstance(error, (LabError, subprocess.CalledProcessError, *_LABGRID))
    return known or raised_by_labgrid(error)


def raised_by_labgrid(error: Exception) -> bool:
    """Whether labgrid or one of its libraries has raised the error."""
    return _package(error) in _PACKAGES


def raised_by_us(error: Exception) -> bool:
    """Whether fsjoule has raised the error, and not a user's test or fixture."""
    return _package(error) == "fsjoule"


def _package(error: Exception) -> str:
    """The package that raised an exception, directly or through Python's standard library."""
    package = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        own = file.startswith("<") or (file.startswith(_STANDARD_LIBRARY) and _SITE_PACKAGES not in file)
        if not own:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package


def _said(error: Exception) -> str:
    """The message of an exception from labgrid, on one line if possible."""
    if isinstance(error, subprocess.CalledProcessError):
        output = error.output or b""
        text = output if isinstance(output, str) else cast("bytes", output).decode(errors="replace")
        command = error.cmd if isinstance(error.cmd, str) else " ".join(map(str, error.cmd))
        tail = text.replace("\r", "\n").strip()[-_OUTPUT_TAIL:]
        # Of a signal labgrid has only the negative number.
        how = f"exit code {error.returncode}" if error.returncode >= 0 else ending(error.returncode)
        return f"{command}: {how}: {tail}"
    if isinstance(error, grpc.RpcError):
        details: object = getattr(error, "details", None)
        return str(details() if callable(details) else error)
    if isinstance(error, (pexpect.EOF, pexpect.TIMEOUT)):
        # The rest is thirty lines of pexpect's own state.
        return str(error.value).partition("\n")[0] or type(error).__name__
    parts = [str(getattr(error, "msg", None) or error)]
    if not isinstance(error, _LABGRID):
        parts.insert(0, type(error).__name__)
    for output in (getattr(error, "stdout", None), getattr(error, "stderr", None)):
        parts += output if isinstance(output, list) else []
    return ": ".join(map(str, parts))[:_OUTPUT_TAIL]


@contextmanager
def time_limit(
    seconds: float, doing: str, diagnose: Callable[[], tuple[str, ...]] = tuple, *, every_s: float = _LOOK_S
) -> Generator[None]:
    """Raise LabError (transient) if the body takes longer, or as soon as `diagnose` reports a dead program.

    `diagnose` is called every `every_s` seconds.

    labgrid's own calls to outlets and over ssh have no limit. It needs the main thread, where pytest and the command
    line run; in other threads there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    deadline, pause_s = time.monotonic() + seconds, min(every_s, seconds)

    def look(_signal: int, _frame: FrameType | None) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise LabError(f"{doing} took longer than {seconds:.0f} s", transient=True)
        # A look may take longer than the pause: only the limit interrupts it.
        signal.setitimer(signal.ITIMER_REAL, left_s, pause_s)
        if causes := diagnose():
            error = LabError(f"{doing} was given up", transient=True)
            error.blame_lab(causes)
            raise error
        signal.setitimer(signal.ITIMER_REAL, pause_s, pause_s)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, pause_s, pause_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
