"""Emulated instruments behind a TCP socket."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def served(conversation: type[socketserver.StreamRequestHandler]) -> Generator[int]:
    """Hold such a conversation with whoever calls this computer; yields the port, a free one."""
    with _Server(("127.0.0.1", 0), conversation) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
