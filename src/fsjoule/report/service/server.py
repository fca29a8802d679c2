"""Serves an index over HTTP, until it is told to end."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.report.service.app import application
from fsjoule.report.service.pages import Pages
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.workers import Workers

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_BACKLOG: Final = 256
# Connections at once: a browser opens six, and a process may open a thousand files.
_MOST_CONNECTIONS: Final = 800
# Of one computer. A proxy is usually on this one, to which it does not apply.
_MOST_OF_ONE: Final = 32
# For the head of a request: whoever takes longer holds a connection and asks for nothing.
_HEAD_S: Final = 10.0
_START_S: Final = 30.0
# A reader who takes longer for what is left of an answer gets no more.
_LAST_BYTES_S: Final = 0.5
_END_S: Final = 5.0


@contextmanager
def serving(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Sequence[str] = (),
    processes: int = 2,
    limit_s: float = 20.0,
) -> Generator[str]:
    """Serve while the body runs; yields the URL. `names` are those of a proxy in front of it, besides its own.

    A request may take `limit_s`. Raises ConfigError for a port that cannot be used, and as opening the index does.
    """
    settings.open().close()  # what is wrong with the index is told before anything is started
    with _listening(host, port) as listener:
        workers = Workers(settings, count=processes, limit_s=limit_s)
        try:
            pages = Pages(settings, workers)
            app = application(settings, pages, workers, hosts=_hosts(host, names))
            config = uvicorn.Config(
                app,
                http=_Connection,
                log_level="warning",
                access_log=False,
                server_header=False,
                backlog=_BACKLOG,
                limit_concurrency=_MOST_CONNECTIONS,
                lifespan="on",
                ws="none",
            )
            with _running(_HttpServer(config), listener, workers):
                address, real_port = listener.getsockname()[:2]
                shown = f"[{address}]" if ":" in address else address
                yield f"http://{shown}:{real_port}{settings.root}/"
        finally:
            workers.close()


def _hosts(host: str, names: Sequence[str]) -> list[str]:
    """The names by which it may be called: others would be those of a page elsewhere that reads what is served here."""
    if host in ("0.0.0.0", "::") and not names:  # noqa: S104 - its user's choice
        return ["*"]
    return list(dict.fromkeys((*LOOPBACK, f"[{host}]" if ":" in host else host, *names)))


@contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{host} port {port} cannot be used: {why}", hint="choose others: --host, --port") from error
    # asyncio sets it on sockets of its own only. Without it the end of an answer waits for the reader's 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listener:
        yield listener


class _Connection(H11Protocol):
    """A reader's connection, closed if it does not ask in time, or if its computer has too many."""

    open_now: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as the base class has it
        super().connection_made(transport)
        self._peer = str((transport.get_extra_info("peername") or [""])[0])
        self._late: asyncio.TimerHandle | None = None
        self.open_now[self._peer] += 1
        if self.open_now[self._peer] > _MOST_OF_ONE and self._peer not in ("127.0.0.1", "::1"):
            transport.abort()
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_now[self._peer] -= 1
        if not self.open_now[self._peer]:
            del self.open_now[self._peer]
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Count the time for a head from its begin, not from its latest byte."""
        if self._is_waiting:
            self._late = self._late or asyncio.get_running_loop().call_later(_HEAD_S, self._give_up)
        elif self._late is not None:
            self._late.cancel()
            self._late = None

    @property
    def _is_waiting(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, which uvicorn's own annotation lacks
        return cycle is None or bool(cycle.response_complete)

    def _give_up(self) -> None:
        self._late = None
        if self._is_waiting:
            self.transport.abort()


class _HttpServer(uvicorn.Server):
    """uvicorn's server in a thread: signals are the command's, and `begun` says that it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn's own forced end cancels requests and the lifespan, and each tells a traceback. A request whose reader
        # has gone just ends.
        asyncio.get_running_loop().call_later(_LAST_BYTES_S, self._leave_readers)
        await super().shutdown(sockets)

    def _leave_readers(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@contextmanager
def _running(server: _HttpServer, listener: socket.socket, workers: Workers) -> Generator[None]:
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        if not server.begun.wait(_START_S):
            raise FsjouleError(
                f"the server did not start within {_START_S:g} s", hint="is this computer overloaded? Try again"
            )
        yield
    finally:
        server.should_exit = True
        # Requests that wait for a page are answered that there is none.
        workers.close()
        thread.join(_END_S)
