"""A client of labgrid's coordinator that hears of every change of a place as it happens, and never waits for ever.

labgrid's own client lives in an event loop that runs only while something is asked: it learns late that a place was
taken away, and cannot tell that it was given away and taken again in between. This one listens in a thread.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from getpass import getuser
from itertools import count
from socket import gethostname
from typing import Any, Final

import grpc
from labgrid.remote.common import Place, Reservation
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages
from labgrid.remote.generated import labgrid_coordinator_pb2_grpc as services
from labgrid.util import labgrid_version
from labgrid.util.proxy import ProxyError, proxymanager

from fsjoule.errors import ConfigError, LabError

_DEFAULT_PORT: Final = 20408
_DEFAULT_ADDRESS: Final = f"127.0.0.1:{_DEFAULT_PORT}"
_ANSWER_TIMEOUT_S: Final = 10.0
_CALL_TIMEOUT_S: Final = 30.0
# A place that is being released may wait so long for an exporter that is slow to let go.
_SETTLE_TIMEOUT_S: Final = 15.0
# The coordinator tells clients by their connection: channels to one address must not share one.
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 7500),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.ping_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
)
_REFUSALS: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
_HINT: Final = "start it, or set LG_COORDINATOR=HOST:PORT"


class RefusedError(LabError):
    """The coordinator answered, and did not do what it was asked for."""


def coordinator_address() -> str:
    """HOST:PORT as LG_COORDINATOR has it."""
    return os.environ.get("LG_COORDINATOR") or _DEFAULT_ADDRESS


def user() -> str:
    """HOST/USER, by which labgrid knows who has a place."""
    return f"{os.environ.get('LG_HOSTNAME', gethostname())}/{os.environ.get('LG_USERNAME', getuser())}"


class Coordinator:
    """A connection. `places` is kept up to date by a thread, which calls `listener` with a name after each change."""

    def __init__(
        self, listener: Callable[[str], None] = lambda _name: None, limit_s: float = _ANSWER_TIMEOUT_S
    ) -> None:
        """Raises ConfigError for an address that is none, LabError if nobody answers there within the limit."""
        self.address = coordinator_address()
        self.places: dict[str, Place] = {}
        self._resources: set[tuple[str, str, str, str]] = set()
        self._listener = listener
        self._broken = threading.Event()
        self._answered: dict[int, threading.Event] = {}
        self._numbers = count(1)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(_target(self.address), options=_OPTIONS)
        self.stub: Any = services.CoordinatorStub(self._channel)
        for request in _subscription():
            self._requests.put(request)
        self._call: Any = self.stub.ClientStream(iter(self._requests.get, None))
        threading.Thread(target=self._listen, daemon=True, name="fsjoule-coordinator").start()
        try:
            self.sync(limit_s)
        except BaseException:
            self.close()
            raise

    def sync(self, limit_s: float = _ANSWER_TIMEOUT_S) -> None:
        """Return when everything that the coordinator has done before is known. Raises LabError if it is silent."""
        number, answered = next(self._numbers), threading.Event()
        self._answered[number] = answered
        if not self._broken.is_set():
            message = messages.ClientInMessage()
            message.sync.id = number
            self._requests.put(message)
            if answered.wait(limit_s) and not self._broken.is_set():
                return
        why = "cannot be reached" if self._broken.is_set() else f"does not answer within {limit_s:.0f} s"
        raise LabError(f"the labgrid coordinator at {self.address} {why}", transient=True, hint=_HINT)

    def call(self, method: Callable[..., Any], request: object, doing: str, limit_s: float = _CALL_TIMEOUT_S) -> Any:  # noqa: ANN401 - gRPC's
        """Ask for something; what it changed is known afterwards. Raises RefusedError, LabError without answer."""
        try:
            answer = method(request, timeout=limit_s)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            kind = RefusedError if code in _REFUSALS else LabError
            why = error.details() if isinstance(error, grpc.Call) else str(error)
            answer = "no answer" if code is grpc.StatusCode.DEADLINE_EXCEEDED else why
            raise kind(f"{doing} failed: {answer}", transient=True) from error
        self.sync()
        return answer

    def settle(self, limit_s: float) -> None:
        """Return when no change is under way and all are known. Raises LabError if that cannot be known.

        A place that is being released is nobody's only after its exporters have let its resources go, which ends their
        consoles. The coordinator makes one change at a time, and answers this between two. Whether it answers at all
        is seen before, within the limit, for it does that whatever it is about.
        """
        self.sync(limit_s)
        request = messages.GetPlacesRequest()
        self.call(self.stub.GetPlaces, request, "asking for the places", _SETTLE_TIMEOUT_S)

    def place(self, name: str) -> Place:
        """Raises ConfigError, with those that there are, if there is none of that name."""
        place = self.places.get(name)
        if place is None:
            raise ConfigError.unknown("place", name, self.places)
        return place

    def unmatched(self, place: Place) -> object | None:
        """What the place is to have and no exporter offers."""
        return place.unmatched(list(self._resources))

    def reservation(self, token: str) -> Reservation | None:
        """Raises LabError."""
        answer = self.call(self.stub.GetReservations, messages.GetReservationsRequest(), "listing the reservations")
        found = [Reservation.from_pb2(each) for each in answer.reservations]
        return next((each for each in found if each.token == token), None)

    def close(self) -> None:
        """End the connection; never raises, never waits."""
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for message in self._call:
                for update in message.updates:
                    self._take(update)
                if message.HasField("sync"):
                    self._answered.pop(message.sync.id).set()
        except grpc.RpcError:
            pass  # why, matters to nobody: whoever asks next is told that it is gone
        finally:
            self._broken.set()
            for answered in list(self._answered.values()):
                answered.set()

    def _take(self, update: Any) -> None:  # noqa: ANN401 - gRPC's
        kind = update.WhichOneof("kind")
        if kind == "place":
            self.places[update.place.name] = Place.from_pb2(update.place)
            self._listener(update.place.name)
        elif kind == "del_place":
            self.places.pop(update.del_place, None)
            self._listener(update.del_place)
        elif kind == "resource":
            path = update.resource.path
            self._resources.add((path.exporter_name, path.group_name, update.resource.cls, path.resource_name))
        elif kind == "del_resource":
            gone = update.del_resource
            key = (gone.exporter_name, gone.group_name, gone.resource_name)
            self._resources = {each for each in self._resources if (each[0], each[1], each[3]) != key}


@contextmanager
def connected() -> Generator[Coordinator]:
    """The coordinator that LG_COORDINATOR names. Raises as Coordinator does."""
    coordinator = Coordinator()
    try:
        yield coordinator
    finally:
        coordinator.close()


def since(place: Place) -> str:
    """Since when the place is as it is, by the coordinator's clock."""
    return f"{datetime.fromtimestamp(place.changed, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _target(address: str) -> str:
    try:
        return proxymanager.get_grpc_address(address, default_port=_DEFAULT_PORT)
    except (ValueError, ProxyError) as error:
        raise ConfigError(
            f"LG_COORDINATOR={address!r} is no address: {error}", hint="LG_COORDINATOR=HOST:PORT"
        ) from error


def _subscription() -> Iterable[object]:
    startup, places, resources = (messages.ClientInMessage() for _ in range(3))
    startup.startup.version = labgrid_version()
    startup.startup.name = user()
    places.subscribe.all_places = True
    resources.subscribe.all_resources = True
    return startup, places, resources
