"""Holding a labgrid place: the lock that says who may use a board, looked at again before anything is done to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Final

from labgrid.remote.common import Place
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages

from fsjoule.errors import ConfigError, LabError, PlaceLostError
from fsjoule.host.interrupts import interruptible, shielded
from fsjoule.lab.coordinator import Coordinator, RefusedError, since, user
from fsjoule.lab.notes import Note, one_run_only
from fsjoule.lab.placenames import check_usable, may_use

_EXPORTER_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 0.2
# A coordinator that lives answers in milliseconds, on a busy machine in a second or two.
_ANSWER_TIMEOUT_S: Final = 5.0
_CONNECT_TIMEOUT_S: Final = 10.0
# One that has just been silent for so long is asked anew, but not waited for: a run asks before each of its steps.
_SILENT_FOR_S: Final = 30.0
_GLANCE_S: Final = 1.0

Say = Callable[[str], None]


def _nothing(_line: str) -> None:
    """Say nothing."""


@contextmanager
def acquired_place(name: str, *, say: Say = _nothing) -> Generator[HeldPlace]:
    """Hold the place `name` of the coordinator that LG_COORDINATOR names; it is released at the end.

    A place that this user has acquired beforehand on this computer (`labgrid-client acquire`), or that its holder
    allows (`labgrid-client allow`), is used, and stays as it is. One that was taken away meanwhile is left alone.
    Raises PlaceHeldError if somebody else holds it, a second run of the same user included, ConfigError if there is no
    such place, LabError if the coordinator cannot be reached.
    """
    if not name:
        raise ConfigError("no place is named", hint="set LG_PLACE to one that `labgrid-client places` lists")
    with ExitStack() as closing:
        held = HeldPlace(name, say)
        closing.callback(held.close)
        note = closing.enter_context(one_run_only(held.address, name))
        try:
            held.take(note)
            yield held
        finally:
            with shielded():
                held.give_back(note)


class HeldPlace:
    """A place that this run has. The coordinator tells at once when it is taken away."""

    def __init__(self, name: str, say: Say = _nothing) -> None:
        """Connect. Raises ConfigError if there is no such place, LabError if the coordinator cannot be reached."""
        self.name = name
        self._say = say
        self._lost = threading.Event()
        self._holder: str | None = None
        self._changed = 0.0
        self._silence = ""
        self._silent_until_s = 0.0
        self._coordinator = Coordinator(self._notice)
        try:
            self._coordinator.place(name)
        except ConfigError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The coordinator's."""
        return self._coordinator.address

    def check(self) -> None:
        """Ask whether the place is still ours. To be called before anything is done to its board.

        Raises PlaceLostError if it is not, and LabError if that cannot be known: soon, if it could not just before.
        """
        if not self._lost.is_set():
            self._ask()
        self.look()

    def look(self) -> None:
        """Raise PlaceLostError if the place is known to be lost, without asking: cheap enough for every wait."""
        if self._lost.is_set():
            raise PlaceLostError(self.name, self._now())

    def take(self, note: Note) -> None:
        """Acquire the place, or find that it may be used; the note says which, also to the run after a kill."""
        place = self._coordinator.place(self.name)
        check_usable(self._coordinator, place)
        if place.acquired:
            left = note.left
            if left is not None and place.acquired == user() and left.left_by(place.changed):
                note.write(acquired=True, before=left.before, after=place.changed)
                self._say(f"place {self.name!r} was left by an earlier run, and is taken over")
            else:
                note.write()
            self._watch(place)
            return
        with interruptible():
            self._await_resources(place)
        with shielded():
            # Before it is done: who is killed in between has not forgotten it.
            note.write(acquired=True, before=place.changed)
            request = messages.AcquirePlaceRequest(placename=self.name)
            try:
                self._coordinator.call(self._coordinator.stub.AcquirePlace, request, f"acquiring {self.name!r}")
            except RefusedError:
                note.write()
                check_usable(self._coordinator, place)  # somebody was faster
                raise
            self._watch(self._coordinator.place(self.name))
            note.write(acquired=True, before=place.changed, after=self._changed)
            self._say(f"place {self.name!r} acquired")

    def give_back(self, note: Note) -> None:
        """Release the place if it was acquired here. That it cannot be is said: it must not hide why the run ended."""
        if note.left is None or not note.left.acquired:
            return
        try:
            if self._holder is not None:
                self.check()
            request = messages.ReleasePlaceRequest(placename=self.name, fromuser=user())
            self._coordinator.call(self._coordinator.stub.ReleasePlace, request, f"releasing {self.name!r}")
        except PlaceLostError as lost:
            self._say(f"the place {self.name!r} is not released: {lost.now}")
            note.write()
        except LabError as error:
            # It is ours still: the next run takes it over.
            self._say(f"warning: {error}")
        else:
            note.write()
            if self._holder is not None:
                self._say(f"place {self.name!r} released")

    def close(self) -> None:
        """End the connection; the place stays as it is."""
        self._holder = None
        self._coordinator.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _watch(self, place: Place) -> None:
        self._holder = place.acquired
        self._judge(place)
        self.look()

    def _notice(self, name: str) -> None:
        """What the connection's thread calls."""
        if name == self.name and self._holder is not None:
            self._judge(self._coordinator.places.get(name))

    def _judge(self, place: Place | None) -> None:
        if place is None or place.acquired != self._holder or not may_use(place):
            self._lost.set()
        else:
            self._changed = place.changed

    def _ask(self) -> None:
        """Learn what has become of the place. Raises LabError."""
        silent = time.monotonic() < self._silent_until_s
        try:
            if silent:
                self._connect_again(_GLANCE_S)
            self._coordinator.settle(_ANSWER_TIMEOUT_S)
        except LabError as error:
            if silent:
                raise LabError(self._silence, transient=True, hint=error.hint) from error
            self._connect_or_give_up()
        self._silent_until_s = 0.0

    def _connect_or_give_up(self) -> None:
        try:
            self._connect_again(_CONNECT_TIMEOUT_S)
        except LabError as error:
            self._silence = f"whether the place {self.name!r} is still ours is not known: {error.what}"
            self._silent_until_s = time.monotonic() + _SILENT_FOR_S
            raise LabError(self._silence, transient=True, hint=error.hint) from error

    def _connect_again(self, limit_s: float) -> None:
        """A coordinator that was away for a while: it may have been asked for anything meanwhile. Raises LabError."""
        coordinator = Coordinator(self._notice, limit_s)
        self._coordinator.close()
        self._coordinator = coordinator
        place, before = coordinator.places.get(self.name), self._changed
        self._judge(place)
        if place is not None and place.changed != before:
            self._lost.set()

    def _now(self) -> str:
        place = self._coordinator.places.get(self.name)
        if place is None:
            return "it does not exist any more"
        if place.acquired is None:
            return f"nobody has it since {since(place)}"
        if place.acquired == user():
            return f"it was released, and acquired anew by you, {place.acquired}; last changed {since(place)}"
        return f"{place.acquired} has it since {since(place)}"

    def _await_resources(self, place: Place) -> None:
        """Wait for an exporter that is just starting. Raises LabError if the place lacks a resource."""
        deadline = time.monotonic() + _EXPORTER_TIMEOUT_S
        while (missing := self._coordinator.unmatched(place)) is not None:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the place {self.name!r} lacks a resource: no exporter has {missing}",
                    transient=True,
                    hint="is its exporter running? see: labgrid-client resources",
                )
            time.sleep(_LOOK_S)
            self._coordinator.sync()


class Guard:
    """All places of an environment: whoever does something to its board asks first."""

    def __init__(self, places: Iterable[HeldPlace] = ()) -> None:
        self._places = tuple(places)

    def check(self) -> None:
        """Raises PlaceLostError if one of them is not ours any more, LabError if that cannot be known."""
        for place in self._places:
            place.check()

    def look(self) -> None:
        """Raises PlaceLostError if one of them is known to be lost. It costs nothing."""
        for place in self._places:
            place.look()


@contextmanager
def acquired_places(names: Iterable[str], *, say: Say = _nothing) -> Generator[Guard]:
    """Hold all these places, as `acquired_place` does."""
    with ExitStack() as closing:
        yield Guard([closing.enter_context(acquired_place(name, say=say)) for name in names])
