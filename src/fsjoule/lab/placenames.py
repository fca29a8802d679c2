"""Names of places, with labgrid-client's meaning, and the right to use them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from string import Template
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.lab.coordinator import Coordinator, connected, may_use, user
from fsjoule.lab.reservation import AT_ONCE, RESERVED, PlaceRequest, check_free, check_some

_VARIABLE: Final = "LG_PLACE"
_IS_VARIABLE: Final = (f"${_VARIABLE}", f"${{{_VARIABLE}}}")
# Instead of a name: tags will choose the place.
BY_TAGS: Final = ""


def find_places(written: Iterable[str], wanted: PlaceRequest = AT_ONCE) -> tuple[str, ...]:
    """Full names of an environment file's places, all of them usable now, or when they have been awaited.

    Instead of a name: BY_TAGS for the place that tags choose, `+TOKEN` for a reservation that is awaited. Raises like
    `find_place`, and ConfigError for tags if the file does not leave its place open.
    """
    written = tuple(written)
    if wanted.tags and not any(each in _IS_VARIABLE for each in written):
        raise ConfigError(
            "--place-tag chooses a place, but the environment file "
            + (f"names {', '.join(written)}" if written else "has no RemotePlace"),
            hint="let it leave the place open: RemotePlace: {name: !template $LG_PLACE}",
        )
    found: list[str] = []
    for each in written:
        if each in _IS_VARIABLE:
            if not wanted.tags:
                found.append(find_place(os.environ.get(_VARIABLE), wanted))
                continue
            with connected() as coordinator:
                (check_some if wanted.wait_s else check_free)(coordinator, dict(wanted.tags))
            found.append(BY_TAGS)
            continue
        try:
            name = Template(each).substitute(os.environ)
        except (KeyError, ValueError) as error:
            hint = "set it, or write the name of the place"
            raise ConfigError(f"the place {each!r} has an unset variable: {error}", hint=hint) from error
        found.append(find_place(name, wanted))
    return tuple(found)


def place_variables(written: Iterable[str], found: Iterable[str]) -> dict[str, str]:
    """Value of LG_PLACE for labgrid, which only knows full names, if the environment file refers to it."""
    names = [name for each, name in zip(written, found, strict=True) if each in _IS_VARIABLE and is_name(name)]
    return {_VARIABLE: names[0]} if names else {}


def is_name(found: str) -> bool:
    """Whether `find_places` found a place's name, and not what is to be awaited."""
    return found != BY_TAGS and not found.startswith(RESERVED)


def find_place(named: str | None, wanted: PlaceRequest = AT_ONCE) -> str:
    """The full name of a place that can be used now, or later if it is awaited. `named` has labgrid-client's meaning.

    `named` is a name, a part of one, an alias, or + with the token of a reservation (or LG_TOKEN). Without it: the only
    place that this user has or may use; otherwise the only place of the coordinator.

    Raises ConfigError if the name is ambiguous or unknown, PlaceHeldError if another user holds the place or has
    reserved it, LabError if the coordinator cannot be reached.
    """
    with connected() as coordinator:
        if wanted.wait_s and named and named.startswith(RESERVED):
            return RESERVED + _token(named)
        name = _matching(coordinator, named) if named else _only(coordinator)
        if not wanted.wait_s:
            coordinator.check_usable(coordinator.places[name])
        return name


def _matching(coordinator: Coordinator, pattern: str) -> str:
    if pattern.startswith(RESERVED):
        return _reserved(coordinator, pattern)
    places = coordinator.places
    if pattern in places:
        return pattern
    me = user().partition("/")[2]
    found: set[str] = set()
    for name, place in places.items():
        for alias in place.aliases:
            owner, _, plain = alias.rpartition(":")
            if owner == me and plain == pattern:
                return name  # a user's own alias wins over a common one
            if owner in ("", me) and pattern in plain:
                found.add(name)
        if pattern in name:
            found.add(name)
    if not found:
        coordinator.place(pattern)
    if len(found) > 1:
        raise ConfigError(f"the place {pattern!r} is ambiguous: {', '.join(sorted(found))}", hint="name one of them")
    return found.pop()


def _token(pattern: str) -> str:
    token = pattern.removeprefix(RESERVED) or os.environ.get("LG_TOKEN", "")
    if not token:
        raise ConfigError(
            f"LG_PLACE={pattern} names a reservation, but LG_TOKEN is not set",
            hint='eval "$(labgrid-client reserve --wait --shell name=PLACE)" sets it',
        )
    return token


def _reserved(coordinator: Coordinator, pattern: str) -> str:
    token = _token(pattern)
    found = [name for name, place in coordinator.places.items() if place.reservation == token]
    if len(found) == 1:
        return found[0]
    reservation = coordinator.reservation(token)
    state = "does not exist any more" if reservation is None else f"is {reservation.state.name}"
    raise ConfigError(
        f"no place is reserved for the token {token!r}: the reservation {state}",
        hint="--wait 30m waits for its place; an unused reservation expires after a minute",
    )


def _only(coordinator: Coordinator) -> str:
    places = coordinator.places
    mine = [name for name, place in places.items() if place.acquired and may_use(place)]
    found = mine if len(mine) == 1 else list(places)
    if len(found) == 1:
        return found[0]
    if not places:
        raise ConfigError(
            f"the coordinator at {coordinator.address} has no place", hint="labgrid-client -p NAME create creates one"
        )
    names = sorted(mine or places)
    raise ConfigError("no place is named", hint=f"set LG_PLACE to one of: {', '.join(names)}")
