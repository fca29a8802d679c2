"""Processes of one run, each with a board: started, heard, left out when they fail, and ended together.

`Processes` is the run's end of their connections, `Link` and `serve` are theirs.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import Popen
from typing import IO, Any, Final

from fsjoule.errors import FsjouleError, LabError
from fsjoule.host import interrupts, process
from fsjoule.host.limits import of_system
from fsjoule.host.messages import lines_to
from fsjoule.host.process_ref import ending, seen
from fsjoule.lab import PROCESS_FOLDER
from fsjoule.lab.notes import RUN
from fsjoule.runs.parallel.messages import Crashed, Failed, Said

_log: Final = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
# A process says every ten seconds that it is well, a stopped or starved one does not.
_SILENT_S: Final = 300.0
_STOPPED_S: Final = 15.0
# A board is switched off, its place is released and its lab goes down.
_END_S: Final = 120.0
_STOP_S: Final = 10.0
_AGAIN_S: Final = 10.0
_TAIL_BYTES: Final = 4000
_USERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Hear = Callable[[int, Any], None]
Lose = Callable[[int, FsjouleError], None]


_WELL_S: Final = 10.0


class BoardProcessError(RuntimeError):
    """A bug in the process of a board, with its traceback."""


@dataclass
class _Process:
    popen: Popen[bytes]
    connection: Connection[Any, Any]
    log: IO[bytes]
    heard_s: float
    folder: Path  # of its temporary files
    over: bool = False
    failed: bool = False  # it has cleaned up, and said so
    gone: bool = False  # it says nothing more

    def silence(self) -> str:
        """Why nothing more is to be expected of it; empty if that is not clear.

        A stopped one is given some time: Ctrl-Z may have stopped it together with the run.
        """
        silent_s = time.monotonic() - self.heard_s
        now = seen(self.popen.pid) if silent_s > _STOPPED_S else None
        if now is not None and now.stopped:
            return "was stopped (SIGSTOP) and does nothing"
        return f"is silent for {_SILENT_S:.0f} s" if silent_s > _SILENT_S else ""

    def last_words(self) -> str:
        self.log.seek(max(0, self.log.seek(0, 2) - _TAIL_BYTES))
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


@dataclass
class Processes:
    """The processes by the number of their boards, from 1. Call `start` for each, `listen` and `send`, and `end`."""

    _each: dict[int, _Process] = field(default_factory=dict[int, _Process])
    _ended: bool = False
    _begun: bool = False  # one has more to say than that it is well, or has failed
    _unsaid: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def left(self) -> list[int]:
        """The boards that have not failed."""
        return [number for number, each in self._each.items() if not each.over]

    def start(self, module: str, lab: str, assignment: object) -> None:
        """Start `python -m MODULE FD LAB`, and send it its assignment."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        # One that has to be killed removes nothing. The name is short, for the paths of sockets in it are limited.
        folder = Path(tempfile.mkdtemp(prefix=PROCESS_FOLDER))
        with theirs:
            command = [sys.executable, "-m", module, str(theirs.fileno()), lab, str(folder), *sys.argv]
            started = process.start(command, log=log, pass_fds=[theirs.fileno()])
        connection: Connection[Any, Any] = Connection(ours.detach())
        connection.send(assignment)
        self._each[len(self._each) + 1] = _Process(started, connection, log, time.monotonic(), folder)

    def send(self, number: int, message: object) -> None:
        """Send a message. To a process that has just ended nothing is sent: the next `listen` finds out."""
        with suppress(OSError):
            self._each[number].connection.send(message)

    def listen(self, hear: Hear, lose: Lose) -> None:
        """Wait a second at most for messages, and give them to `hear` with the board's number.

        A process that has failed, has ended or is silent is given to `lose` with the error. Raises BoardProcessError
        for a bug in one.
        """
        ready = self._ready()
        for number in self.left:
            each = self._each[number]
            if each.connection in ready:
                with interrupts.shielded():  # a message is taken whole
                    self._take(number, each, hear, lose)
            elif why := each.silence():
                process.stop(each.popen, timeout_s=_STOP_S)
                lose(number, LabError(f"board {number}: its process {why}", transient=True))

    def leave_out(self, number: int, error: FsjouleError) -> None:
        """Give a board's process nothing more, and let it end: its board is off and its place is free then.

        Before a board has begun it is said only once another one begins, or if they fail differently: whoever uses the
        boards tells an error of all of them.
        """
        self._unsaid[number] = error.what.splitlines()[0]
        self.send(number, None)
        self._each[number].over = True
        if self._begun or (not self.left and len(set(self._unsaid.values())) > 1):
            self._say_left_out()

    def _say_left_out(self) -> None:
        for number, why in self._unsaid.items():
            _log.info("board %s is left out: %s", number, why)
        self._unsaid.clear()

    def was_killed(self, number: int) -> bool:
        """Whether the process has ended without cleaning up, as it does after the signals of a user."""
        # One that could not be started has no process.
        code = self._each[number].popen.poll() if number in self._each else None
        return code is not None and code < 0 and -code not in _USERS

    def end(self, busy: Collection[int], hear: Hear = lambda _board, _message: None) -> None:
        """End all: boards are off and their labs are down, or the processes are killed after a time.

        Those that are `busy` are interrupted, the others are asked. `hear` gets what they still send.
        """
        if self._ended:
            return
        self._ended = True
        for number in self.left:
            if number not in busy:
                self.send(number, None)
        self._drain([each.popen for number, each in self._each.items() if number in busy and not each.over], hear)
        for number, each in self._each.items():
            if each.popen.poll() is None:
                _log.info("board %s: its process does not end and is killed", number)
            process.stop(each.popen, timeout_s=_STOP_S)
            each.over = True
            each.connection.close()
            each.log.close()
            shutil.rmtree(each.folder, ignore_errors=True)

    def _ready(self) -> Sequence[object]:
        """Wait a second at most for messages. Those of processes that are left out are their last words, and said."""
        ready = wait([each.connection for each in self._each.values() if not each.gone], _LOOK_S)
        for number, each in self._each.items():
            if not each.over or each.connection not in ready:
                continue
            try:
                message = each.connection.recv()
            except (EOFError, OSError):
                each.gone = True
                continue
            if isinstance(message, Said) and message.text:
                _log.info("board %s: %s", number, message.text)
        return ready

    def _take(self, number: int, each: _Process, hear: Hear, lose: Lose) -> None:
        try:
            message = each.connection.recv()
        except (EOFError, OSError):
            each.gone = True
            process.stop(each.popen, timeout_s=_STOP_S)
            why = f"board {number}: its process {ending(each.popen.returncode)}{each.last_words()}"
            lose(number, LabError(why, transient=True))
            return
        each.heard_s = time.monotonic()
        match message:
            case Said(text):
                if text:
                    _log.info("board %s: %s", number, text)
            case Crashed(text):
                each.failed = True
                raise BoardProcessError(f"board {number}:\n{text}")
            case Failed(error):
                each.failed = True
                lose(number, error)
            case _:
                self._begun = True
                self._say_left_out()
                hear(number, message)

    def _drain(self, busy: Sequence[Popen[bytes]], hear: Hear) -> None:
        """Wait for the end of all processes. Their messages are read, for they could not end while they are not.

        Those that are `busy` notice a signal just before a long wait only after that wait, so it is sent again.
        """
        deadline, again_s = time.monotonic() + _END_S, 0.0
        began_s = time.monotonic()

        def lives(each: _Process) -> bool:
            """Whether there is still something to wait for: what has failed only has to end."""
            return each.popen.poll() is None and not (each.failed and time.monotonic() - began_s > _STOP_S)

        while any(map(lives, self._each.values())) and (now_s := time.monotonic()) < deadline:
            if now_s >= again_s:
                for each in busy:
                    each.terminate()  # not its group: programs that write the card are ended by the lab
                again_s = now_s + _AGAIN_S
            ready = self._ready()
            for number in [number for number in self.left if self._each[number].connection in ready]:
                try:
                    hear(number, self._each[number].connection.recv())
                except (EOFError, OSError):
                    self._each[number].gone = True


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

    def tell(self, line: str) -> None:
        self.send(Said(line))

    @contextmanager
    def well(self) -> Generator[None]:
        thread = threading.Thread(target=self._tell_that_it_is_well, name="well", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _tell_that_it_is_well(self) -> None:
        while not self._over.wait(_WELL_S):
            try:
                self.send(Said())
            except OSError:
                # The run is gone, perhaps killed: nobody wants the rest of the boot, and others want the board.
                os.kill(os.getpid(), signal.SIGTERM)
                return


def serve(work: Callable[[Link, str], None], *, tells: bool = True) -> None:
    """The process `python -m MODULE FD LAB FOLDER COMMAND...`: do the work of a board with the lab of that name.

    What it logs goes to the run if it `tells`. Its temporary files, among them those of labgrid's connections by ssh,
    are in the folder, and end with it. COMMAND is the run's, for whoever waits for its place. Errors go to the run,
    which decides. The process ends at a signal, or when the run's process is gone.
    """
    _, line, name, tempfile.tempdir, *sys.argv = sys.argv
    RUN.set(os.getppid())
    connection: Connection[Any, Any] = Connection(int(line))
    link = Link(connection)
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
        closing.callback(connection.close)
        closing.enter_context(interrupts.handled())
        closing.enter_context(redirect_stdout(sys.stderr))
        if tells:
            closing.enter_context(lines_to(link.tell))
        try:
            with link.well():
                work(link, name)
        except KeyboardInterrupt:
            return  # the run has no use for what is left
        except (EOFError, BrokenPipeError):
            return  # the run is gone
        except FsjouleError as error:
            link.send(Failed(error))
        except Exception as error:  # noqa: BLE001 - the run tells it as its own
            known = of_system(error)
            link.send(Crashed(traceback.format_exc()) if known is None else Failed(known))
