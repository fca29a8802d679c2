"""A report over HTTP, for browsers on this machine only."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.report.allure.site import check_report

_LOOPBACK: Final = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files below one folder without a log, and without the browser's cache, because reports are replaced."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


@contextmanager
def serving(report: Path, port: int) -> Generator[str]:
    """Serve a report on the loopback interface; yields its URL. Raises ConfigError without a report or a free port."""
    check_report(report)
    try:
        server = ThreadingHTTPServer((_LOOPBACK, port), partial(_Quiet, directory=str(report)))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", hint="choose another with --port") from error
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{_LOOPBACK}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
