"""A client of labgrid's coordinator that sees every change of a place at once, and never waits for ever.

labgrid's own client has an event loop that runs only during a request. It learns late that a place was taken away, and
misses that a place was released and acquired again in between. This one listens in a thread.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
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

from fsjoule.errors import ConfigError, LabError, PlaceHeldError

_DEFAULT_PORT: Final = 20408
_DEFAULT_ADDRESS: Final = f"127.0.0.1:{_DEFAULT_PORT}"
_ANSWER_TIMEOUT_S: Final = 10.0
_CALL_TIMEOUT_S: Final = 30.0
# The release of a place may wait this long for a slow exporter.
_SETTLE_TIMEOUT_S: Final = 15.0
_THREADS_TIMEOUT_S: Final = 5.0
# The coordinator identifies clients by connection: channels to one address must not share one.
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
    """The coordinator refused a request."""


def coordinator_address() -> str:
    return os.environ.get("LG_COORDINATOR") or _DEFAULT_ADDRESS


def check_coordinator_address() -> None:
    """Raises ConfigError if what the environment says is no address. Nobody is asked."""
    _target(coordinator_address())


def user() -> str:
    """HOST/USER, labgrid's name for the owner of a place."""
    return f"{os.environ.get('LG_HOSTNAME', gethostname())}/{os.environ.get('LG_USERNAME', getuser())}"


class Coordinator:
    """A connection. A thread updates `places` and calls `listener` with the name of each changed place."""

    def __init__(
        self, listener: Callable[[str], None] = lambda _name: None, limit_s: float = _ANSWER_TIMEOUT_S
    ) -> None:
        """Raises ConfigError for a wrong address, LabError if nobody answers within the limit."""
        self.address = coordinator_address()
        self.places: dict[str, Place] = {}
        self._resources: set[tuple[str, str, str, str]] = set()
        self._listener = listener
        self._broken = threading.Event()
        self._answered: dict[int, threading.Event] = {}
        self._numbers = count(1)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._channel = grpc.insecure_channel(_target(self.address), options=_OPTIONS)
        self._stub: Any = services.CoordinatorStub(self._channel)
        startup, places, resources = (messages.ClientInMessage() for _ in range(3))
        startup.startup.version = labgrid_version()
        startup.startup.name = user()
        places.subscribe.all_places = True
        resources.subscribe.all_resources = True
        for request in (startup, places, resources):
            self._requests.put(request)
        self._stream: Any = self._stub.ClientStream(self._sent())
        self._stream_ended = threading.Event()
        if not self._stream.add_callback(self._end_of_stream):
            self._stream_ended.set()
        listening = threading.Thread(target=self._listen, daemon=True, name="fsjoule-coordinator")
        self._threads.add(listening)
        listening.start()
        try:
            self.sync(limit_s)
        except BaseException:
            self.close()
            raise

    def sync(self, limit_s: float = _ANSWER_TIMEOUT_S) -> None:
        """Return when all earlier changes by the coordinator are known. Raises LabError if it is silent."""
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

    def _ask(self, method: Callable[..., Any], request: object, doing: str, limit_s: float = _CALL_TIMEOUT_S) -> Any:  # noqa: ANN401 - gRPC's
        """Send a request and wait until its changes are known. Raises RefusedError, or LabError without answer."""
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
        """Return when no change is in progress and all are known. Raises LabError if that cannot be known.

        A released place is free only after its exporters have released its resources, which ends their consoles. The
        coordinator makes one change at a time and answers GetPlaces between two, but answers `sync` at any time: so
        `sync` first shows, within the limit, whether it answers at all.
        """
        self.sync(limit_s)
        request = messages.GetPlacesRequest()
        self._ask(self._stub.GetPlaces, request, "asking for the places", _SETTLE_TIMEOUT_S)

    def place(self, name: str) -> Place:
        """Raises ConfigError with the known names for an unknown one."""
        place = self.places.get(name)
        if place is None:
            raise ConfigError.unknown("place", name, self.places)
        return place

    def unmatched(self, place: Place) -> object | None:
        """A resource match of the place that no exporter offers, or None."""
        return place.unmatched(list(self._resources))

    def offered(self, place: Place) -> set[tuple[str, str]]:
        """Class and name of each resource that an exporter offers to the place."""
        found: set[tuple[str, str]] = set()
        for path in self._resources:
            if (match := place.getmatch(path)) is not None:
                found.add((path[2], match.rename or path[3]))
        return found

    @property
    def gone(self) -> bool:
        """Whether the connection is known to have ended. Its places may have changed since."""
        return self._broken.is_set()

    def acquire(self, name: str) -> None:
        """Acquire the place for this user. Raises PlaceHeldError if another user was faster, RefusedError, LabError."""
        try:
            request = messages.AcquirePlaceRequest(placename=name)
            self._ask(self._stub.AcquirePlace, request, f"acquiring {name!r}")
        except RefusedError:
            self.check_usable(self.place(name))
            raise

    def release(self, name: str) -> None:
        """Release the place, which this user has: nobody else's. Raises RefusedError, LabError."""
        request = messages.ReleasePlaceRequest(placename=name, fromuser=user())
        self._ask(self._stub.ReleasePlace, request, f"releasing {name!r}")

    def check_usable(self, place: Place) -> None:
        """Raise PlaceHeldError, with its user and advice, if the place is another user's."""
        me = user()
        if place.acquired:
            if may_use(place):
                return
            host, _, who = place.acquired.partition("/")
            if who == me.partition("/")[2]:
                hint = f"release it on {host}, which is yours; if {host} is gone: "
                hint += f"labgrid-client -p {place.name} release -k"
            else:
                hint = f"ask {who}, who may also share it (labgrid-client -p {place.name} allow {me}); to wait for it: "
                hint += "--wait 30m"
            raise PlaceHeldError(place.name, place.acquired, since=since(place), hint=hint)
        if place.reservation:
            reservation = self.reservation(place.reservation)
            if reservation is not None and reservation.owner != me:
                hint = "labgrid-client reservations shows all; --wait 30m waits"
                raise PlaceHeldError(place.name, reservation.owner, verb="reserved for", hint=hint)

    def set_tags(self, name: str, tags: Mapping[str, str]) -> None:
        """Set these tags of the place, and remove those that are "". Raises RefusedError, LabError."""
        request = messages.SetPlaceTagsRequest(placename=name, tags=tags)
        self._ask(self._stub.SetPlaceTags, request, f"setting the state of {name!r}")

    def reserve(self, tags: Mapping[str, str], priority: float, what: str) -> Reservation:
        """Reserve a place with these tags: `what`, in words. Raises RefusedError, LabError."""
        wanted = messages.Reservation.Filter(filter=tags)
        request = messages.CreateReservationRequest(filters={"main": wanted}, prio=priority)
        answer = self._ask(self._stub.CreateReservation, request, f"reserving {what}")
        return Reservation.from_pb2(answer.reservation)

    def poll_reservation(self, token: str, what: str) -> Reservation:
        """The reservation, which is kept alive. Raises RefusedError if there is none with this token, LabError."""
        request = messages.PollReservationRequest(token=token)
        answer = self._ask(self._stub.PollReservation, request, f"waiting for {what}")
        return Reservation.from_pb2(answer.reservation)

    def cancel_reservation(self, token: str) -> None:
        """Raises RefusedError if there is no reservation with this token, LabError."""
        request = messages.CancelReservationRequest(token=token)
        self._ask(self._stub.CancelReservation, request, "cancelling the reservation")

    def reservations(self) -> list[Reservation]:
        """All reservations. Raises LabError."""
        answer = self._ask(self._stub.GetReservations, messages.GetReservationsRequest(), "listing the reservations")
        return [Reservation.from_pb2(each) for each in answer.reservations]

    def reservation(self, token: str) -> Reservation | None:
        """The reservation with this token, or None. Raises LabError."""
        return next((each for each in self.reservations() if each.token == token), None)

    def close(self) -> None:
        """End the connection and its threads.

        Python stops daemon threads wherever they are. gRPC's can be stopped while one holds the lock of the stream,
        for which the stream's destructor then waits for ever: the program would never exit.
        """
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()
        deadline = time.monotonic() + _THREADS_TIMEOUT_S
        self._stream_ended.wait(_THREADS_TIMEOUT_S)
        for thread in self._threads.copy() - {threading.current_thread()}:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _remember_thread(self) -> None:
        self._threads.add(threading.current_thread())

    def _end_of_stream(self) -> None:
        self._remember_thread()  # gRPC's thread of events
        self._stream_ended.set()

    def _sent(self) -> Generator[Any]:
        self._remember_thread()  # gRPC's thread of requests
        yield from iter(self._requests.get, None)

    def _listen(self) -> None:
        try:
            for message in self._stream:
                for update in message.updates:
                    self._take(update)
                if message.HasField("sync"):
                    self._answered.pop(message.sync.id).set()
        except grpc.RpcError:
            pass  # the next request reports that the connection is gone
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
    """The coordinator that LG_COORDINATOR names. Raises like Coordinator."""
    coordinator = Coordinator()
    try:
        yield coordinator
    finally:
        coordinator.close()


def may_use(place: Place) -> bool:
    return place.acquired == user() or user() in place.allowed


def since(place: Place) -> str:
    """The time of the place's last change, by the coordinator's clock."""
    return f"{datetime.fromtimestamp(place.changed, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _target(address: str) -> str:
    try:
        return proxymanager.get_grpc_address(address, default_port=_DEFAULT_PORT)
    except (ValueError, ProxyError) as error:
        raise ConfigError(
            f"LG_COORDINATOR={address!r} is not an address: {error}", hint="LG_COORDINATOR=HOST:PORT"
        ) from error
