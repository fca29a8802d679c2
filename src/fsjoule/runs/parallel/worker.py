"""The process of one board: `python -m fsjoule.runs.parallel.worker FD NAME`. It brings up a lab, holds it, and boots.

Errors go to the run, which decides. The process ends at a signal, or when the run's process is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Final

from fsjoule import lab
from fsjoule.bench.run import Bench
from fsjoule.errors import FsjouleError, LabError, also
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.model import Measurement, Run, Trace
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Failed, Message, Ready, Said, Stored
from fsjoule.runs.profiler import LabProfiler
from fsjoule.runs.session import Session

_WELL_S: Final = 10.0


@dataclass
class _Link:
    """The connection to the run. Two threads send: a word that this process is well comes every few seconds."""

    connection: Connection[Message, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def send(self, message: Message) -> None:
        with interrupts.shielded(), self._lock:  # half a message would end the conversation
            self.connection.send(message)

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
                return


@dataclass
class _BootStore:
    """A ports.ResultStore that keeps a boot until it is sent."""

    run: Run
    stored: list[Stored] = field(default_factory=list[Stored])
    kept: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def begin(self, run: Run) -> None:
        self.run = run

    def update(self, run: Run) -> None:
        self.run = run

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        self.stored.append(Stored(measurement, trace, dict(attachments)))

    def keep(self, name: str, content: bytes) -> None:
        self.kept.append((name, content))

    def finish(self, run: Run) -> None:
        self.run = run


def main() -> None:
    connection: Connection[Message, Any] = Connection(int(sys.argv[1]))
    link = _Link(connection)
    with ExitStack() as closing:
        closing.callback(connection.close)
        closing.enter_context(interrupts.handled())
        closing.enter_context(redirect_stdout(sys.stderr))
        try:
            with link.well():
                _work(link, sys.argv[2])
        except KeyboardInterrupt:
            return  # the run has no use for what is left
        except (EOFError, BrokenPipeError):
            return  # the run is gone
        except FsjouleError as error:
            link.send(Failed(error))
        except Exception:  # noqa: BLE001 - the run tells it as its own
            link.send(Failed(bug=traceback.format_exc()))


def _work(link: _Link, name: str) -> None:
    assignment: Assignment = link.connection.recv()
    choice = replace(assignment.choice, boards=1)
    environment = replace(assignment.environment, virtual_lab=name)
    session = Session(choice, environment, _hear_nothing, assignment.command, taken=assignment.kernels)
    with ExitStack() as closing:
        closing.callback(session.close)
        session.open()
        closing.enter_context(session.lab.place())
        with interrupts.interruptible():
            target = closing.enter_context(lab.labgrid_target(environment.path))
        session.say = link.say
        link.send(Ready(session.lab.emulator, lab.lab_facts(target)))
        while (boot := _next(link)) is not None:
            link.send(_booted(session, target, boot, link))


def _next(link: _Link) -> Boot | None:
    with interrupts.interruptible():
        return link.connection.recv()


def _booted(session: Session, target: Any, boot: Boot, link: _Link) -> Done:  # noqa: ANN401 - a labgrid Target
    """Measure the entries of a boot. A fault that the bench's second try does not cure ends it."""
    board, meter, diagnose = session.equipment(target)
    store = _BootStore(boot.run)
    with lab.recorded_steps() as take_steps:
        bench = Bench(
            *(boot.run, session.profile, board, meter, store, HostClock(), link.say, _stored_quietly),
            take_steps=take_steps,
            diagnose=diagnose,
            profiler=LabProfiler(os.environ.get("LG_COORDINATOR", "")) if session.choice.profiled else None,
            sampled=session.choice.sampled,
        )
        fault: FsjouleError | None = None
        try:
            bench.begin()
            with interrupts.interruptible():
                for entry in boot.entries:
                    bench.measure(entry)
        except LabError as error:
            fault = error
        except BaseException as error:
            with also(error, "switching the board off"):
                bench.finish("the board's process ends")
            raise
        bench.finish(None if fault is None else fault.what)
    return Done(boot.number, store.run, tuple(store.stored), bench.boots, tuple(store.kept), fault)


def _hear_nothing(_text: str) -> None:
    """The run has said already what all boards have in common."""


def _stored_quietly(_measurement: Measurement) -> None:
    """The run tells of measurements, in their order."""


if __name__ == "__main__":
    main()
