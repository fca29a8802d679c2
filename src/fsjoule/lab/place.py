"""Holding a labgrid place: the lock that says who may use a board."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from labgrid.remote.client import ClientSession, ServerError, UserError, ensure_event_loop
from labgrid.remote.common import Place
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages
from labgrid.remote.generated import labgrid_coordinator_pb2_grpc as services
from labgrid.util.proxy import proxymanager

from fsjoule.errors import ConfigError, LabError, PlaceHeldError
from fsjoule.paths import state_dir

_DEFAULT_PORT: Final = 20408
_DEFAULT_COORDINATOR: Final = f"127.0.0.1:{_DEFAULT_PORT}"
_EXPORTER_TIMEOUT_S: Final = 10.0
_CALL_TIMEOUT_S: Final = 30.0


@contextmanager
def acquired_place(name: str, *, say: Callable[[str], None] = lambda _text: None) -> Generator[str]:
    """Hold the place `name` of the coordinator that LG_COORDINATOR names; it is released at the end.

    A place that this user has acquired beforehand on this computer (`labgrid-client acquire`) is used, and stays so.
    Raises PlaceHeldError if somebody else holds it, a second run of the same user included, ConfigError if there is no
    such place, LabError if the coordinator cannot be reached.
    """
    if not name:
        raise ConfigError("no place is named", hint="set LG_PLACE to one that `labgrid-client places` lists")
    with _one_run_only(name) as note:
        ours = _acquire(name, say) or note.acquired
        note.acquired = ours
        try:
            yield name
        finally:
            # What could not be released is ours still: the next run takes it over.
            note.acquired = ours and not _release(name, say)


class _Note:
    """A locked file that says whether a run acquired the place and has not released it yet: it has content then."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def acquired(self) -> bool:
        return os.fstat(self._descriptor).st_size > 0

    @acquired.setter
    def acquired(self, acquired: bool) -> None:
        os.ftruncate(self._descriptor, 0)
        if acquired:
            os.pwrite(self._descriptor, b"acquired\n", 0)


@contextmanager
def _one_run_only(name: str) -> Generator[_Note]:
    """All processes of its user may use a place, says labgrid; two runs at once would drive one board."""
    directory = state_dir() / "places"
    directory.mkdir(exist_ok=True)
    path = directory / f"{_address()}-{name}".replace("/", "_")
    descriptor = _locked(path)
    if descriptor is None:
        raise PlaceHeldError(name, "another run of yours on this computer")
    note = _Note(descriptor)
    try:
        yield note
    finally:
        if not note.acquired:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    """The descriptor of the file, made if it is not there and locked; None if somebody else has locked it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # removed by a run that ended between our opening and our locking


def _address() -> str:
    return os.environ.get("LG_COORDINATOR", _DEFAULT_COORDINATOR)


class _OwnConnection(ClientSession):
    """A session that shares no connection with another one of this process, as gRPC's channels to one address do.

    The coordinator tells clients by their connection and refuses two on one.
    """

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.channel = grpc.aio.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = services.CoordinatorStub(self.channel)


@contextmanager
def _session() -> Generator[ClientSession]:
    loop = ensure_event_loop()
    address = proxymanager.get_grpc_address(_address(), default_port=_DEFAULT_PORT)
    session = _OwnConnection(address, loop)  # pyright: ignore[reportCallIssue] - attrs without types
    try:
        with _quiet():
            loop.run_until_complete(session.start())
        yield session
    except ServerError as error:
        raise LabError(
            f"the labgrid coordinator at {_address()} cannot be reached",
            transient=True,
            hint="start it, or set LG_COORDINATOR=HOST:PORT",
        ) from error
    finally:
        loop.run_until_complete(session.stop())
        loop.run_until_complete(session.close())


@contextmanager
def _quiet() -> Generator[None]:
    """Keep labgrid quiet, which logs an unreachable coordinator as an error of its own; ours says it better."""
    root = logging.getLogger()
    disabled, root.disabled = root.disabled, True
    try:
        yield
    finally:
        root.disabled = disabled


def _acquire(name: str, say: Callable[[str], None]) -> bool:
    """Acquire the place. Returns False if this user has it already."""
    with _session() as session:
        place = session.places.get(name)
        if place is None:
            raise ConfigError.unknown("place", name, session.places)
        me = f"{session.gethostname()}/{session.getuser()}"
        if place.acquired == me:
            return False
        if place.acquired:
            raise PlaceHeldError(name, place.acquired)
        _await_resources(session, place)
        try:
            _call(
                session, session.stub.AcquirePlace, messages.AcquirePlaceRequest(placename=name), f"acquiring {name!r}"
            )
        except KeyboardInterrupt:
            _release(name, say)
            raise
        say(f"place {name!r} acquired")
    return True


def _await_resources(session: ClientSession, place: Place) -> None:
    """Wait for an exporter that is just starting. Raises LabError if the place lacks a resource."""
    deadline = time.monotonic() + _EXPORTER_TIMEOUT_S
    while True:
        try:
            session.check_matches(place)
        except UserError as error:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the place {place.name!r} lacks a resource: {error.args[0]}",
                    transient=True,
                    hint="is its exporter running? see: labgrid-client resources",
                ) from error
            session.loop.run_until_complete(asyncio.sleep(0.2))
        else:
            return


def _release(name: str, say: Callable[[str], None]) -> bool:
    """Release the place. That it cannot be released is said, not raised: it must not hide why the run ended."""
    try:
        with _session() as session:
            me = f"{session.gethostname()}/{session.getuser()}"
            request = messages.ReleasePlaceRequest(placename=name, fromuser=me)
            _call(session, session.stub.ReleasePlace, request, f"releasing {name!r}")
    except LabError as error:
        say(f"warning: {error}")
        return False
    say(f"place {name!r} released")
    return True


def _call(session: ClientSession, method: Callable[..., Any], request: object, doing: str) -> None:
    async def call() -> None:
        await method(request, timeout=_CALL_TIMEOUT_S)
        await asyncio.wait_for(session.sync_with_coordinator(), _CALL_TIMEOUT_S)

    try:
        session.loop.run_until_complete(call())
    except (grpc.aio.AioRpcError, TimeoutError) as error:
        detail = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer"
        raise LabError(f"{doing} failed: {detail}", transient=True) from error
