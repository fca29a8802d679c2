"""A local server that speaks the parts of GitLab's API for notes on merge requests, issues, kept runs and runners.

https://docs.gitlab.com/api/notes/#merge-requests, https://docs.gitlab.com/api/users/#get-the-current-user,
https://docs.gitlab.com/api/packages/ and https://docs.gitlab.com/user/packages/generic_packages/
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

from runner_server import Asked, RunnerServer

BOT = 7
JOB_TOKEN = "job-planted_4712"


@dataclass
class GitLab:
    """What the server holds, and what it was asked. `fail_with` makes it answer everything like that.

    `packages` are generic ones, by name, version and file. With `storage` their content is in that server's `bucket`.
    """

    token: str
    project: str = "42"
    merge_request: int = 5
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    fail_with: tuple[int, str] | None = None
    redirect_to: str | None = None
    packages: dict[tuple[str, str, str], bytes] = field(default_factory=dict[tuple[str, str, str], bytes])
    storage: str | None = None
    issues: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bucket: dict[str, bytes] = field(default_factory=dict[str, bytes])
    url: str = ""
    per_page: int = 20
    # What runners ask for.
    work: RunnerServer = field(default_factory=RunnerServer)

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

    def do_PATCH(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""

    def _answer(self) -> None:
        gitlab, address = self.gitlab, urlsplit(self.path)
        sent = self._sent()
        gitlab.asked.append((self.command, address.path))
        gitlab.headers.append(dict(self.headers))
        if gitlab.redirect_to is not None:
            self._send(302, {}, {"Location": gitlab.redirect_to + self.path})
        elif gitlab.fail_with is not None:
            self._send(gitlab.fail_with[0], {"message": gitlab.fail_with[1]})
        elif (kept := gitlab.bucket.get(address.path.removeprefix("/bucket/"))) is not None:
            self._send_bytes(200, kept, {"Content-Type": "application/octet-stream"})
        elif address.path.startswith("/bucket/"):
            self._send(404, {"message": "no such key"})
        elif gitlab.work.takes(below := address.path.removeprefix("/api/v4")):
            self._runners(Asked(self.command, below, address.query, self.headers, sent))
        elif address.path.startswith(f"/api/v4/projects/{gitlab.project}/packages"):
            self._packages(address.path, parse_qs(address.query), sent)
        elif self.headers.get("Authorization") != f"Bearer {gitlab.token}":
            self._send(401, {"message": "401 Unauthorized"})
        elif address.path == "/api/v4/user":
            self._send(200, {"id": BOT, "username": "project_42_bot"})
        elif address.path.startswith(f"/api/v4/projects/{gitlab.project}/issues"):
            self._issues(address.path, parse_qs(address.query), json.loads(sent or b"{}"))
        else:
            self._notes(address.path, parse_qs(address.query), json.loads(sent or b"{}"))

    def _sent(self) -> bytes:
        """The request's body. A file of unknown size comes in chunks, each with its size before it."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent = bytearray()
        while size := int(self.rfile.readline(), 16):
            sent += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(sent)

    def _runners(self, asked: Asked) -> None:
        answer = self.gitlab.work.answer(asked)
        if answer.content is None:
            self._send(answer.status, answer.document, dict(answer.headers))
        else:
            self._send_bytes(answer.status, answer.content, dict(answer.headers))

    def _packages(self, path: str, query: dict[str, list[str]], sent: bytes) -> None:
        """Unlike the rest of the API these take a job's own token."""
        gitlab = self.gitlab
        root = f"/api/v4/projects/{gitlab.project}/packages"
        name, version, file = f"{path.removeprefix(f'{root}/generic')}///".split("/")[1:4]
        key = (name, version, file)
        if self.headers.get("JOB-TOKEN") != JOB_TOKEN:
            self._send(401, {"message": "401 Unauthorized"})
        elif path == root and self.command == "GET":
            assert (query["order_by"], query["sort"]) == (["version"], ["desc"])
            # The name is looked for anywhere in a package's.
            found = [
                {"id": 1, "name": name, "version": version, "package_type": "generic"}
                for name, version, _ in sorted(gitlab.packages, key=lambda each: each[1], reverse=True)
                if query["package_name"][0] in name
            ]
            self._page(root, found, query)
        elif all(key) and self.command == "PUT":
            gitlab.packages[key] = sent
            self._send(201, {"message": "201 Created"})
        elif key in gitlab.packages and self.command == "GET":
            if gitlab.storage is None:
                self._send_bytes(200, gitlab.packages[key], {"Content-Type": "application/octet-stream"})
            else:
                self._send(302, {}, {"Location": f"{gitlab.storage}/bucket/{version}"})
        else:
            self._send(404, {"message": "404 Not found"})

    def _notes(self, path: str, query: dict[str, list[str]], sent: dict[str, Any]) -> None:
        gitlab = self.gitlab
        root = f"/api/v4/projects/{gitlab.project}/merge_requests/{gitlab.merge_request}/notes"
        if path == root and self.command == "GET":
            self._page(root, gitlab.notes, query)
        elif path == root and self.command == "POST" and sent.get("body"):
            self._send(201, gitlab.add(sent["body"]))
        elif path.startswith(f"{root}/") and self.command == "PUT" and sent.get("body"):
            self._change(int(path.rpartition("/")[2]), sent["body"])
        else:
            self._send(404, {"message": "404 Not found"})

    def _issues(self, path: str, query: dict[str, list[str]], sent: dict[str, Any]) -> None:
        """https://docs.gitlab.com/api/issues/."""
        gitlab = self.gitlab
        root = f"/api/v4/projects/{gitlab.project}/issues"
        number = int(path.removeprefix(f"{root}/")) if path.startswith(f"{root}/") else 0
        if path == root and self.command == "GET":
            (label,), (author,) = query["labels"], query["author_id"]
            found = [each for each in gitlab.issues if label in each["labels"] and each["author"]["id"] == int(author)]
            self._page(root, found, query)
        elif path == root and self.command == "POST":
            made = {"iid": len(gitlab.issues) + 1, "state": "opened", "author": {"id": BOT}, **sent}
            gitlab.issues.append(made | {"labels": sent["labels"].split(",")})
            self._send(201, made)
        elif 0 < number <= len(gitlab.issues) and self.command == "PUT":
            gitlab.issues[number - 1].update(sent)
            self._send(200, gitlab.issues[number - 1])
        else:
            self._send(404, {"message": "404 Not found"})

    def _page(self, root: str, everything: list[dict[str, Any]], query: dict[str, list[str]]) -> None:
        page = int(query.get("page", ["1"])[0])
        first = (page - 1) * self.gitlab.per_page
        found = everything[first : first + self.gitlab.per_page]
        more = first + len(found) < len(everything)
        rest = "".join(f"&{name}={values[0]}" for name, values in query.items() if name != "page")
        link = {"Link": f'<{self.gitlab.url}{root}?page={page + 1}{rest}>; rel="next"'} if more else {}
        self._send(200, found, link)

    def _change(self, number: int, body: str) -> None:
        for note in self.gitlab.notes:
            if note["id"] == number and note["author"]["id"] == BOT:
                note["body"] = body
                self._send(200, note)
                return
        self._send(403, {"message": "403 Forbidden"})

    def _send(self, status: int, document: object, headers: dict[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(document).encode(), {"Content-Type": "application/json"} | (headers or {}))

    def _send_bytes(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
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
