"""Waiting for a place in labgrid's own queue: a reservation, kept alive while it waits, and cancelled at any end.

A user asks for one with `--place-tag soc=imx6ul --wait 30m --priority 10`.

labgrid's coordinator allocates a free place to the reservation with the highest priority, the oldest of several. A
reservation that nobody polls for 60 s expires, and its place goes to the next one at most 30 s later: so long can a
waiter that was killed keep others from a free place.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from labgrid.remote.common import TAG_KEY, Place, Reservation, ReservationState

from fsjoule.errors import ConfigError, LabError, PlaceHeldError
from fsjoule.host.interrupts import interruptible, shielded
from fsjoule.lab.coordinator import Coordinator, RefusedError, may_use, since
from fsjoule.lab.states import OWN_TAGS, STATE, fit, state_of
from fsjoule.model.labels import listed
from fsjoule.model.places import PlaceHealth

_log: Final = logging.getLogger(__name__)
Usable = Callable[[Coordinator, str], bool]

# A place's change is heard at once; polling keeps the reservation alive.
_POLL_S: Final = 5.0
_LINE_S: Final = 60.0
# labgrid's own.
_EXPIRES_S: Final = 60.0
_SHOWN: Final = 5
_UNKNOWN: Final = PlaceHealth.UNKNOWN
_HINT: Final = "labgrid-client who shows who works where; --wait 30m waits, --priority 10 goes before others that wait"
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d*)?)([smh])")
_VALUE: Final = re.compile(r"\S+")
# In front of a reservation's token: LG_PLACE=+, LG_PLACE=+TOKEN.
RESERVED: Final = "+"


@contextmanager
def reserved(
    wanted: PlaceRequest,
    *,
    name: str = "",
    usable: Usable = lambda _coordinator, _name: False,
    line_s: float = _LINE_S,
    expires_s: float = _EXPIRES_S,
) -> Generator[PlaceTurn]:
    """Wait for one of the places that are wanted, or for the one called `name` (`+TOKEN`: the user's own reservation).

    `usable` says whether a place needs no reservation, because it is ours already. What is awaited is said every
    `line_s` seconds. The reservation is cancelled at the end of the body at the latest, unless it is the user's own.
    Raises ConfigError if there is no such place, PlaceHeldError or LabError if none is free in time.
    """
    turn = PlaceTurn(wanted, name, expires_s)
    try:
        with interruptible():
            turn.wait(usable, line_s)
        yield turn
    finally:
        with shielded():
            turn.close()


class PlaceTurn:
    """A reservation. `place` is the full name of the place that may be acquired; `allocated`: by the reservation."""

    def __init__(self, wanted: PlaceRequest, name: str = "", expires_s: float = _EXPIRES_S) -> None:
        """Connect. Raises ConfigError for tags or a name that no place has, LabError."""
        self.place = ""
        self.allocated = False
        self._wanted = wanted
        self._own = not name.startswith(RESERVED)
        self._token = "" if self._own else name.removeprefix(RESERVED)
        self._filter: dict[str, str] = {"name": name} if name else dict(wanted.tags)
        self._what = str(wanted) if not name else f"the place {name!r}" if self._own else f"reservation {self._token}"
        self._gone: LabError | None = None  # why there is no coordinator
        self._connected_anew = False
        self._expires_s, self._polled_s = expires_s, 0.0
        self._changed = threading.Event()
        self._coordinator = self._connected()
        try:
            if self._own:
                check_some(self._coordinator, self._filter)
                self._filter = fit(self._coordinator.places.values(), self._filter)
        except ConfigError:
            self._coordinator.close()
            raise

    def wait(self, usable: Usable, line_s: float) -> None:
        """Return when the place may be acquired. Raises PlaceHeldError or LabError after `wait_s` seconds."""
        began = line_at = time.monotonic()
        deadline = began + self._wanted.wait_s
        while not self._found(usable):
            now = time.monotonic()
            if now >= deadline:
                raise self._gone or held_error(self._coordinator, self._filter, self._what, self._wanted.wait_s)
            if now >= line_at:
                _log.info("%s", self._line(now - began))
                line_at = now + line_s
            self._changed.wait(min(_POLL_S, deadline - now, line_at - now))

    def cancel(self) -> None:
        """Give up the reservation, unless it is the user's own. An acquired place needs none."""
        token, self._token = self._token, ""
        if not token or not self._own:
            return
        try:
            self._coordinator.cancel_reservation(token)
        except RefusedError:
            pass  # it has expired
        except LabError as error:
            _log.warning("%s; the reservation expires within two minutes", error.what)

    def close(self) -> None:
        self.cancel()
        self._coordinator.close()

    def _connected(self) -> Coordinator:
        return Coordinator(lambda _name: self._changed.set())

    def _found(self, usable: Usable) -> bool:
        """Keep the reservation alive; returns whether there is a place."""
        self._changed.clear()
        try:
            if not self._some_good():
                return False
            names = matching(self._coordinator.places.values(), self._filter) if self._own else []
            self.place = next((name for name in names if usable(self._coordinator, name)), "")
            if self.place:
                self.cancel()
            return bool(self.place) or self._allocated()
        except RefusedError as error:
            self._forgotten(error)
        except LabError as error:
            self._connect_again(error)
        return False

    def _some_good(self) -> bool:
        """Reserve by other tags from now on if a place of the pool got its first state, or lost its last one.

        Returns whether there is a place to be reserved: labgrid refuses to wait for one that is yet to become good.
        """
        if not self._own or "name" in self._filter:
            return True
        places = list(self._coordinator.places.values())
        now = fit(places, dict(self._wanted.tags))
        some = STATE not in now or bool(matching(places, now))
        if now != self._filter or not some:
            self.cancel()
            self._filter = now
        return some

    def _allocated(self) -> bool:
        """Whether the reservation has a place. Raises RefusedError if there is no such reservation, LabError."""
        if self._token:
            found = self._coordinator.poll_reservation(self._token, self._what)
        else:
            with shielded():
                found = self._coordinator.reserve(self._filter, self._wanted.priority, self._what)
                self._token = found.token
        self._connected_anew, self._polled_s = False, time.monotonic()
        if not self._own:
            self._filter = dict(found.filters["main"])
        self.allocated = found.state is ReservationState.allocated
        # The user may have acquired the place of their own reservation already; for ours, another program of the user
        # did, without waiting: it is allocated to us again when that program releases it.
        if self.allocated or (found.state is ReservationState.acquired and not self._own):
            [self.place] = found.allocations["main"]
            return True
        if found.state not in (ReservationState.waiting, ReservationState.acquired):
            # This process stood still for a minute, or the allocated place was deleted.
            if not self._own:
                raise ConfigError(f"{self._what} is {found.state.name}", hint="labgrid-client reserve makes another")
            _log.info("the reservation for %s is %s: reserving again", self._what, found.state.name)
            self.cancel()
            self._changed.set()
        return False

    def _forgotten(self, error: RefusedError) -> None:
        """The reservation does not exist. Raises LabError unless the coordinator was restarted, or it has expired.

        It expires while this process stands still, or ends what a killed job has left.
        """
        if not self._own:
            raise ConfigError(
                f"{self._what} does not exist any more", hint="labgrid-client reserve makes another"
            ) from error
        if not self._token:
            raise error
        try:
            self._coordinator.sync()
        except LabError as gone:
            self._connect_again(gone)
            return
        self._token = ""
        if time.monotonic() - self._polled_s >= self._expires_s:
            _log.info("the reservation for %s has expired: reserving again", self._what)
        elif not self._connected_anew:
            raise LabError(
                f"the reservation for {self._what} was cancelled; labgrid does not tell by whom",
                hint="labgrid-client reservations shows all",
            ) from error
        self._changed.set()

    def _connect_again(self, error: LabError) -> None:
        """Connect to a coordinator that was away; the next look tries once more."""
        if self._gone is None:
            _log.info("%s: waiting for the coordinator", error.what)
        self._gone = error
        try:
            coordinator = self._connected()
        except LabError as still:
            self._gone = still
            return  # the next look tries again
        self._coordinator.close()
        if self._connected_anew:
            self._changed.clear()  # it goes on failing: it is asked at the usual pace
        else:
            self._changed.set()
        self._coordinator, self._gone, self._connected_anew = coordinator, None, True

    def _line(self, waited_s: float) -> str:
        limit = f"{spoken(waited_s)} of at most {spoken(self._wanted.wait_s)}"
        try:
            reservations = self._coordinator.reservations()
        except LabError as error:
            return f"waiting for {self._what}, {limit}; {error.what}"
        places = list(self._coordinator.places.values())
        ours = set(matching(places, self._filter))
        # All who wait for a place that we could get.
        waiting = [
            each.token
            for each in sorted(reservations, key=lambda each: (-each.prio, each.created))
            if each.state is ReservationState.waiting and ours & set(matching(places, each.filters["main"]))
        ]
        queue = ""
        if self._token in waiting:
            queue = f"; number {waiting.index(self._token) + 1} of {len(waiting)} in the queue"
        who = _told(self._coordinator, self._filter, reservations) or "there is no such place now"
        return f"waiting for {self._what}, {limit}{queue}; {who}"


def check_some(coordinator: Coordinator, wanted: Mapping[str, str]) -> None:
    """Raise ConfigError if no place has these tags; it lists the tags that there are."""
    if matching(coordinator.places.values(), wanted):
        return
    if "name" in wanted:
        coordinator.place(wanted["name"])
    places = coordinator.places.values()
    tags = sorted({f"{key}={value}" for each in places for key, value in each.tags.items() if key not in OWN_TAGS})
    raise ConfigError(
        f"no place of the coordinator at {coordinator.address} has {_tags(wanted)}",
        hint=f"their tags are {', '.join(tags)}" if tags else "labgrid-client -p PLACE set-tags KEY=VALUE sets one",
    )


def check_free(coordinator: Coordinator, wanted: Mapping[str, str]) -> None:
    """Raise like `check_some`, and PlaceHeldError or LabError if all places with these tags are somebody else's.

    A place that this user has or may use is free for a run of this user, as a place that is named.
    """
    check_some(coordinator, wanted)
    wanted = fit(coordinator.places.values(), wanted)
    found = [coordinator.places[name] for name in matching(coordinator.places.values(), wanted)]
    if not any(may_use(place) if place.acquired else not place.reservation for place in found):
        raise held_error(coordinator, wanted, f"a place with {_tags(wanted)}", 0.0)


def held_error(coordinator: Coordinator, wanted: Mapping[str, str], what: str, waited_s: float) -> LabError:
    """The error for places that are all somebody's."""
    within = f"not free within {spoken(waited_s)}" if waited_s else "not free"
    reservations = coordinator.reservations()
    names = matching(coordinator.places.values(), wanted)
    if len(names) == 1 and (holder := _holder(coordinator.places[names[0]], reservations)) is not None:
        verb, who, when = holder
        error = PlaceHeldError(names[0], who, verb=verb, since=when, hint=_HINT)
        if waited_s:
            error.add_note(f"it was {within}")
        return error
    return LabError(f"{what} was {within}: {_told(coordinator, wanted, reservations)}", transient=True, hint=_HINT)


def matching(places: Iterable[Place], wanted: Mapping[str, str]) -> list[str]:
    """Names of the places that labgrid would allocate to a reservation with this filter."""
    pairs = set(wanted.items())
    return sorted(place.name for place in list(places) if pairs <= {("name", place.name), *place.tags.items()})


def spoken(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 5 min`."""
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes or not hours else [])])


def _told(coordinator: Coordinator, wanted: Mapping[str, str], reservations: Iterable[Reservation]) -> str:
    """Who has the places, in words."""
    names = matching(coordinator.places.values(), wanted)
    told: list[str] = []
    for name in names[:_SHOWN]:
        holder = _holder(coordinator.places[name], reservations)
        verb, who, when = holder or ("free", "", "")
        told.append(f"{name} is {verb}{f' {who}' if who else ''}{f' since {when}' if when else ''}")
    pool = {key: value for key, value in wanted.items() if key != STATE}
    told += [
        f"{name} is {'of unknown state' if (state := state_of(coordinator.places[name])) is _UNKNOWN else state}"
        for name in matching(coordinator.places.values(), pool)
        if name not in names
    ][:_SHOWN]
    return "; ".join([*told, *([f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])])


def _holder(place: Place, reservations: Iterable[Reservation]) -> tuple[str, str, str] | None:
    """How, whose and since when; None if it is free."""
    if place.acquired:
        return "held by", place.acquired, since(place)
    owner = next((each.owner for each in reservations if each.token == place.reservation), None)
    return None if owner is None else ("reserved for", owner, "")


def _tags(wanted: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in wanted.items())


@dataclass(frozen=True, slots=True)
class Waiter:
    """A reservation. `place` is "" while it waits, else the one that it may acquire; `places` have its tags.

    `since_s` is when it was made, in seconds of the coordinator's epoch.
    """

    owner: str
    tags: Mapping[str, str]
    priority: float
    since_s: float
    places: tuple[str, ...]
    place: str


def waiters(coordinator: Coordinator) -> list[Waiter]:
    """Reservations that wait or may acquire, the first to be served first. Raises LabError."""
    places = list(coordinator.places.values())
    alive = (ReservationState.waiting, ReservationState.allocated)
    found = [each for each in coordinator.reservations() if each.state in alive]
    return [
        Waiter(
            owner=each.owner,
            tags=dict(each.filters["main"]),
            priority=each.prio,
            since_s=each.created,
            places=tuple(matching(places, each.filters["main"])),
            place=next(iter(each.allocations.get("main", ())), ""),
        )
        for each in sorted(found, key=lambda each: (-each.prio, each.created))
    ]


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Any place with all `tags`, or the named one without tags; awaited for at most `wait_s` seconds.

    Waiters are served by `priority`, the highest first, then by age.
    """

    tags: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    priority: float = 0.0

    @property
    def reserves(self) -> bool:
        """Whether a reservation is needed."""
        return bool(self.tags or self.wait_s)

    def named(self, place: str) -> PlaceRequest:
        """The same, and it must be this place."""
        return replace(self, tags=(*self.tags, ("name", place)))

    def __str__(self) -> str:
        return "a place with " + ", ".join(f"{key}={value}" for key, value in self.tags)


AT_ONCE: Final = PlaceRequest()


def place_request(tags: str | None, wait: str | None, priority: float | None) -> PlaceRequest:
    """The options --place-tag, --wait and --priority. Raises ConfigError."""
    found = PlaceRequest(_written_tags(tags), seconds("--wait", wait) if wait is not None else 0.0, priority or 0.0)
    if not math.isfinite(found.priority):
        raise ConfigError(f"--priority {priority}: it is a number", hint="for example --priority 10")
    if priority is not None and not found.reserves:
        raise ConfigError(
            "--priority orders those who wait for a place, and this run does not wait",
            hint="add --wait 30m, or --place-tag KEY=VALUE",
        )
    return found


def seconds(option: str, text: str) -> float:
    """Seconds in `90s`, `30m` or `2h`. Raises ConfigError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{option} {text}: it is a number with s, m or h", hint=f"for example {option} 30m")
    return float(found[1]) * _UNITS[found[2]]


def _written_tags(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    pairs: dict[str, str] = {}
    for each in listed(text):
        key, _, value = each.partition("=")
        if TAG_KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None or pairs.get(key, value) != value:
            raise ConfigError(
                f"--place-tag {text}: {each!r} is not a tag of a place",
                hint="KEY=VALUE[,KEY=VALUE], for example soc=imx6ul; labgrid-client -p PLACE set-tags sets them",
            )
        pairs[key] = value
    if not pairs:
        raise ConfigError("--place-tag names no tag", hint="for example --place-tag soc=imx6ul")
    return tuple(pairs.items())
