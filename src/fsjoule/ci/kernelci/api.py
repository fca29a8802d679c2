"""KernelCI's API, as far as a lab that polls for jobs needs it: events, and nodes of jobs.

Sources: kernelci-api (api/main.py, doc/api-details.md) and kernelci-core (kernelci/api/models.py) of July and August
2026; kernelci/pullab_cloud, KernelCI's own lab that polls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, cast

from fsjoule.ci.kernelci.web import asked
from fsjoule.errors import ConfigError, KernelCIError
from fsjoule.host.web import is_address

TOKEN_VARIABLE: Final = "KCI_API_TOKEN"  # noqa: S105 - its name, not a token
# The API's limit for events with their nodes.
EVENTS_AT_ONCE: Final = 1000
_NODE_ID: Final = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Api:
    """KernelCI's API by its address with the version (https://api.kernelci.org/latest), and a user's token of it."""

    url: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not is_address(self.url):
            raise ConfigError("this is no address of KernelCI's API", hint="https://api.kernelci.org/latest")
        if not self.token:
            raise ConfigError(
                f"there is no token of {self.url}",
                hint=f"{TOKEN_VARIABLE}: of a user in the group runtime:LAB:node-editor, who may take the lab's jobs",
            )

    def user(self) -> str:
        """The token's user. Raises KernelCIError if the API does not know it."""
        found = self._object("GET", "whoami", "asking KernelCI who we are")
        return str(found.get("username") or found.get("email") or "")

    def waiting(self, since: str) -> list[dict[str, Any]]:
        """Events of jobs that wait for a lab, with their nodes, after a time (ISO 8601). Raises KernelCIError."""
        query = {"state": "available", "kind": "job", "recursive": "true", "limit": str(EVENTS_AT_ONCE), "from": since}
        what = "asking KernelCI for jobs"
        found = asked("GET", f"{self._base}/events", what, token=self.token, query=query)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in cast("list[object]", found)):
            raise self._strange(what)
        return cast("list[dict[str, Any]]", found)

    def node(self, number: str) -> dict[str, Any]:
        """Raises KernelCIError."""
        return self._object("GET", self._node(number), f"asking KernelCI for node {number}")

    def update(self, node: dict[str, Any]) -> None:
        """Write a node, changed, as `node` gave it. Raises KernelCIError, for example without the right."""
        self._object("PUT", self._node(node["id"]), f"changing KernelCI's node {node['id']}", document=node)

    @property
    def _base(self) -> str:
        return self.url.rstrip("/")

    def _node(self, number: str) -> str:
        if not is_node(number):
            raise KernelCIError(f"{number!r} is no node of KernelCI's")
        return f"node/{number}"

    def _object(self, method: str, path: str, what: str, document: object = None) -> dict[str, Any]:
        found = asked(method, f"{self._base}/{path}", what, token=self.token, document=document)
        if not isinstance(found, dict):
            raise self._strange(what)
        return cast("dict[str, Any]", found)

    def _strange(self, what: str) -> KernelCIError:
        return KernelCIError(f"{what}: {self.url} does not answer as KernelCI's API does", hint="is the address right?")


def is_node(number: object) -> bool:
    """Whether it is the number of a node. It names a folder, too."""
    return isinstance(number, str) and _NODE_ID.fullmatch(number) is not None
