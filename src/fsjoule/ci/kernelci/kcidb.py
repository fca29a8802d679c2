"""KCIDB, KernelCI's database of results: where a lab that polls sends its figures.

Source: kernelci/kcidb-ng (SUBMITTERS.md, kcidb-restd-rs) of April 2026.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, cast

from fsjoule.ci.kernelci.web import asked
from fsjoule.errors import ConfigError, KernelCIError
from fsjoule.host.web import is_address

VARIABLE: Final = "KCIDB_REST"
# KernelCI's tools have address and token in one: https://TOKEN@db.kernelci.org
_FORM: Final = re.compile(r"(?P<scheme>https?://)(?P<token>[^/@:\s]+)@(?P<rest>[^@\s]+)")


@dataclass(frozen=True, slots=True)
class Kcidb:
    """The address that documents are sent to, and the token of the CI system."""

    url: str
    token: str = field(repr=False)

    def submit(self, document: str) -> str:
        """Send a document; its number there. It is checked there later. Raises KernelCIError if it is refused."""
        what = "sending the figures to KCIDB"
        answer: Any = asked("POST", self.url, what, token=self.token, document=json.loads(document))
        told = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        if told.get("status") != "ok":
            raise KernelCIError(f"{what}: {self.url} does not answer as KCIDB does", hint="is the address right?")
        return str(told.get("id", ""))


def kcidb_of(written: str) -> Kcidb:
    """The database from https://TOKEN@HOST, as KernelCI's tools write it. Raises ConfigError."""
    found = _FORM.fullmatch(written)
    url = "" if found is None else f"{found['scheme']}{found['rest']}".rstrip("/").removesuffix("/submit") + "/submit"
    if found is None or not is_address(url):
        raise ConfigError(f"{VARIABLE} is not https://TOKEN@HOST", hint="https://TOKEN@staging.db.kernelci.org")
    return Kcidb(url, found["token"])
