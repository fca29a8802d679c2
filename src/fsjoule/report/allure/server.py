"""A report over HTTP, for browsers on this machine only."""

from __future__ import annotations

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final

from fsjoule.errors import ConfigError
from fsjoule.report.allure.site import check_report

_LOOPBACK: Final = "127.0.0.1"
_NAMES: Final = (_LOOPBACK, "localhost")


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files below one folder without a log, and without the browser's cache, because reports are replaced."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        # By another name it would be a page elsewhere, in the same browser, that reads the report.
        if re.sub(r":\d*$", "", self.headers.get("Host", "")) not in _NAMES:
            self.send_error(HTTPStatus.BAD_REQUEST, "this report is not called so")
            return None
        return super().send_head()

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
