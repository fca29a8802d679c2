"""A local server that speaks the part of GitLab's API that notes on merge requests take.

https://docs.gitlab.com/api/notes/#merge-requests and https://docs.gitlab.com/api/users/#get-the-current-user
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOT = 7


@dataclass
class GitLab:
    """What the server holds, and what it was asked. `fail_with` makes it answer everything like that."""

    token: str
    project: str = "42"
    merge_request: int = 5
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    fail_with: tuple[int, str] | None = None
    redirect_to: str | None = None
    url: str = ""
    per_page: int = 20

    def add(self, body: str, author: int = BOT) -> dict[str, Any]:
        note = {"id": len(self.notes) + 100, "body": body, "author": {"id": author}, "system": False}
        self.notes.append(note)
        return note

    def bodies(self) -> list[str]:
        return [note["body"] for note in self.notes]


class _Handler(BaseHTTPRequestHandler):
    gitlab: GitLab

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""

    def _answer(self) -> None:
        gitlab, address = self.gitlab, urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        sent = json.loads(self.rfile.read(length)) if length else {}
        gitlab.asked.append((self.command, address.path))
        gitlab.headers.append(dict(self.headers))
        if gitlab.redirect_to is not None:
            self._send(302, {}, {"Location": gitlab.redirect_to + self.path})
        elif gitlab.fail_with is not None:
            self._send(gitlab.fail_with[0], {"message": gitlab.fail_with[1]})
        elif self.headers.get("Authorization") != f"Bearer {gitlab.token}":
            self._send(401, {"message": "401 Unauthorized"})
        elif address.path == "/api/v4/user":
            self._send(200, {"id": BOT, "username": "project_42_bot"})
        else:
            self._notes(address.path, parse_qs(address.query), sent)

    def _notes(self, path: str, query: dict[str, list[str]], sent: dict[str, Any]) -> None:
        gitlab = self.gitlab
        root = f"/api/v4/projects/{gitlab.project}/merge_requests/{gitlab.merge_request}/notes"
        if path == root and self.command == "GET":
            self._page(root, int(query.get("page", ["1"])[0]))
        elif path == root and self.command == "POST" and sent.get("body"):
            self._send(201, gitlab.add(sent["body"]))
        elif path.startswith(f"{root}/") and self.command == "PUT" and sent.get("body"):
            self._change(int(path.rpartition("/")[2]), sent["body"])
        else:
            self._send(404, {"message": "404 Not found"})

    def _page(self, root: str, page: int) -> None:
        first = (page - 1) * self.gitlab.per_page
        found = self.gitlab.notes[first : first + self.gitlab.per_page]
        more = first + len(found) < len(self.gitlab.notes)
        link = {"Link": f'<{self.gitlab.url}{root}?page={page + 1}>; rel="next"'} if more else {}
        self._send(200, found, link)

    def _change(self, number: int, body: str) -> None:
        for note in self.gitlab.notes:
            if note["id"] == number and note["author"]["id"] == BOT:
                note["body"] = body
                self._send(200, note)
                return
        self._send(403, {"message": "403 Forbidden"})

    def _send(self, status: int, document: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def gitlab_server(token: str) -> Generator[GitLab]:
    """A server on loopback that knows one user, one project and one merge request; it ends with the body."""
    gitlab = GitLab(token)
    handler = type("Handler", (_Handler,), {"gitlab": gitlab})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        gitlab.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield gitlab
        finally:
            server.shutdown()
            thread.join()
