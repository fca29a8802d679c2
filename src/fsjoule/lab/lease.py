"""The lease of a labgrid place: who has it may use its board, and is asked before each use.

A run and a job hold a place for as long as their process lives (`acquired_place`, `acquired_for_job`). Programs that
hold it one after the other, as a LAVA job's helpers do, share it as one user: one acquires it, others use it, the last
one releases it (`acquire`, `complete`, `release`). Such a place counts for a run as acquired beforehand.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Final

from labgrid.remote.common import Place

from fsjoule.errors import ConfigError, ExporterError, FsjouleError, LabError, Part, PlaceHeldError, PlaceLostError
from fsjoule.host.interrupts import interruptible, shielded
from fsjoule.host.messages import silent
from fsjoule.lab import states
from fsjoule.lab.coordinator import Coordinator, RefusedError, connected, may_use, since, user
from fsjoule.lab.notes import Note, NoteKind, in_use, one_run_only
from fsjoule.lab.reservation import AT_ONCE, PlaceRequest, PlaceTurn, reserved
from fsjoule.model.places import PlaceHealth

_log: Final = logging.getLogger(__name__)

_EXPORTER_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 0.2
# A living coordinator answers in milliseconds; on a busy machine in a second or two.
_ANSWER_TIMEOUT_S: Final = 5.0
_CONNECT_TIMEOUT_S: Final = 10.0
# A coordinator that has just been silent is asked again, but not awaited: a run asks before each of its steps.
_SILENT_FOR_S: Final = 30.0
_GLANCE_S: Final = 1.0
_ASK_S: Final = 5.0
# A place that somebody else has is tried again.
_ACQUIRE_S: Final = 2.0
# Whoever had the place before has released it, and ends in a moment.
_ENDING_S: Final = 20.0
# Why nobody can answer at a coordinator's address, for a place, in words: it is not asked then.
Faults = Callable[[str, str], tuple[str, ...]]


def _none(_address: str, _place: str) -> tuple[str, ...]:
    return ()


@contextmanager
def acquired_place(name: str, *, wanted: PlaceRequest = AT_ONCE, faults: Faults = _none) -> Generator[Lease]:
    """Hold the place `name` of LG_COORDINATOR's coordinator, and release it at the end.

    A place that this user acquired before on this computer (`labgrid-client acquire`), or that its holder allows
    (`labgrid-client allow`), is used and not released. A place that was taken away meanwhile is left alone.
    With `wanted` it is awaited; tags choose it if there is no name; `+TOKEN` is the place of a reservation.

    Raises PlaceHeldError if another user or another run of this user holds it, ConfigError if it does not exist,
    LabError if the coordinator cannot be reached.
    """
    if not name and not wanted.tags:
        raise ConfigError("no place is named", hint="set LG_PLACE to one that `labgrid-client places` lists")
    if not wanted.reserves:
        with _held(name, faults=faults) as (lease, _):
            yield lease
        return

    with (
        reserved(wanted, name=name, usable=_is_ours_unused) as turn,
        _held(turn.place, turn, faults=faults) as (lease, _),
    ):
        yield lease


@contextmanager
def acquired_for_job(
    name: str, wanted: PlaceRequest, *, recover: Callable[[Coordinator], None]
) -> Generator[tuple[Lease, Note]]:
    """Hold a place for a job, within which runs use it. Before and while it waits, `recover` is called.

    A job's place is never one that was acquired before: another job of this user may have it. Raises like
    `acquired_place`.
    """
    told: set[str] = set()

    def usable(coordinator: Coordinator, _name: str) -> bool:
        try:
            recover(coordinator)
        except LabError as error:
            # It may be about another place. If it is the coordinator that is away, the wait itself meets that.
            if error.what not in told:
                _log.warning("%s", error.what)
            told.add(error.what)
        return False

    with (
        reserved(wanted, name=name, usable=usable) as turn,
        _held(turn.place, turn, NoteKind.JOB) as (lease, note),
    ):
        yield lease, note


def release_left(name: str) -> None:
    """Release a place that a killed run of this computer has left acquired; a failure is only reported.

    Nothing is done to a place that another run has or that was acquired in another way. No signal interrupts it.
    """
    try:
        with connected() as coordinator, one_run_only(coordinator.address, name) as note:
            if note.acquired(coordinator.place(name)):
                coordinator.release(name)
                note.write()
                _log.info("place %r was left acquired and is released", name)
    except FsjouleError as error:
        _log.warning("place %r is not released: %s", name, error.what)


def _is_ours_unused(coordinator: Coordinator, name: str) -> bool:
    """Whether the place was acquired by hand or left by a killed run, and no run on this computer uses it."""

    def ours() -> bool:
        place = coordinator.places.get(name)
        return place is not None and place.acquired is not None and may_use(place)

    if not ours() or in_use(coordinator.address, name):
        return False
    # A run that has just ended released the place before it left off using it.
    coordinator.sync()
    return ours()


@contextmanager
def _held(
    name: str, turn: PlaceTurn | None = None, kind: NoteKind = NoteKind.RUN, faults: Faults = _none
) -> Generator[tuple[Lease, Note]]:
    with ExitStack() as closing:
        lease = Lease(name, faults)
        closing.callback(lease.close)
        allocated = turn is not None and turn.allocated
        with interruptible():
            wait_s = _ENDING_S if allocated else _GLANCE_S
            note = closing.enter_context(one_run_only(lease.address, name, kind, wait_s=wait_s))
        try:
            lease.take(note, fresh=allocated)
            if turn is not None:
                turn.close()  # a reservation that outlives the release would keep the place from others for a minute
            yield lease, note
        finally:
            with shielded():
                lease.give_back(note)


class Lease:
    """A place that this run holds. The coordinator reports at once when it is taken away."""

    def __init__(self, name: str, faults: Faults = _none) -> None:
        """Connect. Raises ConfigError for an unknown place, LabError if the coordinator cannot be reached."""
        self.name = name
        self._faults = faults
        self._lost = threading.Event()
        self._holder: str | None = None
        self._changed = 0.0
        self._note: Note | None = None
        self._silence = ""
        self._silent_until_s = 0.0
        self._ask_at_s = 0.0
        self.freed = True  # False: it was to be released, and that failed
        self._coordinator = Coordinator(self._notice)
        try:
            self._coordinator.place(name)
        except ConfigError:
            self.close()
            raise

    @property
    def address(self) -> str:
        return self._coordinator.address

    def check(self) -> None:
        """Ask whether the place is still ours, before anything is done to its board.

        Raises PlaceLostError if it is not, and LabError if that is unknown (soon, if it was unknown just before).
        """
        if not self._lost.is_set():
            self._check_answers()
            silent = time.monotonic() < self._silent_until_s
            try:
                if silent:
                    self._connect_again(_GLANCE_S)
                self._coordinator.settle(_ANSWER_TIMEOUT_S)
            except LabError as error:
                if silent:
                    raise LabError(self._silence, transient=True, hint=error.hint) from error
                self._check_answers()  # it may have died meanwhile
                self._connect_or_give_up()
            self._silent_until_s = 0.0
        self.look()

    def look(self) -> None:
        """Raise PlaceLostError if the place is known to be lost. It asks nobody: cheap enough for every wait."""
        if self._lost.is_set():
            raise PlaceLostError(self.name, self._now())
        if self._note is not None and self._note.left is not None and self._note.left.after not in {0.0, self._changed}:
            # A tag was set, or somebody allowed: whoever finds our note after a kill must still know the place as ours.
            self._note.keep(dataclasses.replace(self._note.left, after=self._changed))

    def watch(self) -> None:
        """As `look`, but a coordinator that was away is asked, for it may have forgotten who holds its places.

        That takes seconds, and comes every few seconds at most. A coordinator that stays away takes no place from us.
        """
        if self._coordinator.gone and time.monotonic() >= self._ask_at_s:
            self._ask_at_s = time.monotonic() + _ASK_S
            try:
                self.check()
            except PlaceLostError:
                raise
            except LabError:
                pass  # it is asked again
        self.look()

    def lacks(self) -> str:
        """The place's first resource that no exporter has now, in words; empty if all are there. Raises LabError."""
        self._check_answers()
        self._coordinator.sync()
        missing = self._coordinator.unmatched(self._coordinator.place(self.name))
        return "" if missing is None else f"the place {self.name!r} lacks a resource: no exporter has {missing}"

    def take(self, note: Note, *, fresh: bool = False) -> None:
        """Acquire the place, or use one that we may use. The note tells which, even to a run after a kill.

        A `fresh` place must be free: it was allocated to us.
        """
        self._note = note
        place = self._coordinator.place(self.name)
        if states.state_of(place) in {PlaceHealth.DOUBTFUL, PlaceHealth.BAD, PlaceHealth.MAINTENANCE}:
            _log.info("place %r has the state %s, and is used because it was named", self.name, states.state_of(place))
        self._coordinator.check_usable(place)
        if place.acquired and fresh:
            note.write()
            hint = "another program of yours acquired it without waiting for it; start again"
            raise PlaceHeldError(self.name, place.acquired, since=since(place), hint=hint)
        if place.acquired:
            if note.left is not None and note.acquired(place):
                note.write(acquired=True, before=note.left.before, after=place.changed)
                _log.info("place %r was left acquired by an earlier run and is taken over", self.name)
            else:
                note.write()
            self._watch(place)
            return
        with interruptible():
            self._await_resources(place)
        with shielded():
            # Written before the request, so that a kill in between is covered.
            note.write(acquired=True, before=place.changed)
            try:
                self._coordinator.acquire(self.name)
            except (PlaceHeldError, RefusedError):
                note.write()
                raise
            self._watch(self._coordinator.place(self.name))
            note.write(acquired=True, before=place.changed, after=self._changed)
            _log.info("place %r acquired", self.name)

    def give_back(self, note: Note) -> None:
        """Release the place if it was acquired here. A failure is only reported: it must not hide why the run ended."""
        if note.left is None or not note.left.acquired:
            return
        try:
            if self._holder is not None:
                self.check()
            self._coordinator.release(self.name)
        except PlaceLostError as lost:
            _log.info("place %r is not released: %s", self.name, lost.now)
            note.write()
        except LabError as error:
            # The place is still ours: the next run takes it over.
            self.freed = False
            _log.warning("%s", error)
        else:
            note.write()
            if self._holder is not None:
                _log.info("place %r released", self.name)

    def note_end(self, part: Part | None, bad_after: int) -> None:
        """As the function `note_end`; nothing is noted at a place that is not ours any more."""
        if self._holder is not None and not self._lost.is_set():
            note_end(self.name, part, bad_after)

    def close(self) -> None:
        self._holder = None
        self._coordinator.close()

    def _watch(self, place: Place) -> None:
        self._holder = place.acquired
        self._judge(place)
        self.look()

    def _notice(self, name: str) -> None:
        if name == self.name and self._holder is not None:
            self._judge(self._coordinator.places.get(name))

    def _judge(self, place: Place | None) -> None:
        if place is None or place.acquired != self._holder or not may_use(place):
            self._lost.set()
        else:
            self._changed = place.changed

    def _check_answers(self) -> None:
        if causes := self._faults(self.address, self.name):
            what = f"it is not known whether the place {self.name!r} is still ours"
            raise LabError(f"{'; '.join(causes)}: {what}", transient=True)

    def _connect_or_give_up(self) -> None:
        try:
            self._connect_again(_CONNECT_TIMEOUT_S)
        except LabError as error:
            self._silence = f"it is not known whether the place {self.name!r} is still ours: {error.what}"
            self._silent_until_s = time.monotonic() + _SILENT_FOR_S
            raise LabError(self._silence, transient=True, hint=error.hint) from error

    def _connect_again(self, limit_s: float) -> None:
        """Connect after a coordinator's absence, in which the place may have changed. Raises LabError."""
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
            return f"nobody has it since {since(place)}; labgrid does not tell who released it"
        if place.acquired == user():
            return f"it was released and acquired again by you, {place.acquired}; last changed {since(place)}"
        return f"{place.acquired} has it since {since(place)}"

    def _await_resources(self, place: Place) -> None:
        """Wait until all resources are there: an exporter may be just starting. Raises ExporterError."""
        deadline = time.monotonic() + _EXPORTER_TIMEOUT_S
        while (missing := self._coordinator.unmatched(place)) is not None:
            if time.monotonic() > deadline:
                raise ExporterError(self.name, missing)
            time.sleep(_LOOK_S)
            self._coordinator.sync()


class Guard:
    """All places of an environment, to be checked before anything is done to its board."""

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        self._leases = tuple(leases)

    @property
    def places(self) -> tuple[str, ...]:
        """The places' full names."""
        return tuple(lease.name for lease in self._leases)

    def check(self) -> None:
        """Raise PlaceLostError if a place is not ours any more, LabError if that is unknown."""
        for lease in self._leases:
            lease.check()

    def lacks(self) -> tuple[str, ...]:
        """Each place's first resource that no exporter has now, in words. Raises LabError."""
        return tuple(lacking for lease in self._leases if (lacking := lease.lacks()))

    def look(self) -> None:
        """Raise PlaceLostError if a place is known to be lost. It costs nothing."""
        for lease in self._leases:
            lease.look()

    def note_end(self, part: Part | None, bad_after: int) -> None:
        """Note at the board's place how a run ended."""
        for lease in self._leases[:1]:
            lease.note_end(part, bad_after)


def note_end(name: str, part: Part | None, bad_after: int) -> None:
    """Note how a run at the place ended, which nobody need hold. A failure to do so is only reported."""
    try:
        with connected() as coordinator:
            line = states.note_end(coordinator, name, part, bad_after)
    except LabError as error:
        line = f"warning: how the run ended is not noted at the place {name!r}: {error.what}"
    if line:
        _log.info("%s", line)


@contextmanager
def acquired_places(
    names: Iterable[str], *, wanted: PlaceRequest = AT_ONCE, faults: Faults = _none
) -> Generator[Guard]:
    """As `acquired_place`, for all places of an environment file."""
    with ExitStack() as closing:
        yield Guard([closing.enter_context(acquired_place(name, wanted=wanted, faults=faults)) for name in names])


def is_ours(name: str) -> bool:
    """Whether this user has acquired the place. Raises ConfigError if there is no such place, LabError."""
    with connected() as coordinator:
        return coordinator.place(name).acquired == user()


def acquire(name: str, *, wait_s: float) -> None:
    """Acquire the place for this user, beyond this process. A place that this user has is left so.

    Waits up to `wait_s` for somebody else, or for a resource that an exporter has yet to offer.
    Raises PlaceHeldError or LabError after that; ConfigError if there is no such place.
    """
    _acquire_within(name, wait_s, lambda error: isinstance(error, PlaceHeldError) or error.transient)


def release(name: str) -> None:
    """Release the place, if this user has it. Raises LabError."""
    with connected() as coordinator:
        if coordinator.place(name).acquired == user():
            coordinator.release(name)


def complete(name: str, *, wait_s: float) -> None:
    """Acquire a place of ours again whose acquisition was cut off: labgrid names us, but has taken no resource.

    labgrid's coordinator frees what it had taken only when it looks for such resources, and the exporter may have to
    start anew: this waits up to `wait_s` for both. Call it only while no other program acquires the place. Raises
    PlaceHeldError if somebody else is faster, LabError.
    """
    with connected() as coordinator:
        place = coordinator.place(name)
        if place.acquired != user() or place.acquired_resources:
            return
        coordinator.release(name)
    with silent():
        _acquire_within(name, wait_s, lambda error: error.transient and not isinstance(error, PlaceHeldError))


def _acquire_within(name: str, wait_s: float, passes: Callable[[LabError], bool]) -> None:
    """Acquire the place; an error that `passes` ends it only after `wait_s`."""
    deadline = time.monotonic() + wait_s
    told = ""
    while True:
        try:
            with connected() as coordinator:
                _acquire(coordinator, name)
        except LabError as error:
            if not passes(error):
                raise
            if time.monotonic() >= deadline:
                error.add_note(f"it was not free within {wait_s:.0f} s")
                raise
            if error.what != told:
                told = error.what
                _log.info("%s: waiting up to %.0f s", error.what, deadline - time.monotonic())
            time.sleep(_ACQUIRE_S)
        else:
            return


def _acquire(coordinator: Coordinator, name: str) -> None:
    place = coordinator.place(name)
    if place.acquired == user():
        return
    coordinator.check_usable(place)
    if place.acquired:
        # Its holder lets us use it, but it would not be ours to switch off and to release in the end.
        raise PlaceHeldError(name, place.acquired, hint="it is shared with you; a job needs a place of its own")
    if (missing := coordinator.unmatched(place)) is not None:
        raise ExporterError(name, missing)
    try:
        coordinator.acquire(name)
    except RefusedError:
        if coordinator.place(name).acquired != user():  # or another helper of ours was faster
            raise
