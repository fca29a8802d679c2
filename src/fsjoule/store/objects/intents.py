"""The objects on which a push relies, named before it looks for them, until its run's manifest names them.

The key has a random part, so that pushes of one run do not overwrite each other's. A push leaves its intents behind,
because it may not be allowed to remove anything; a removal takes them away when no push can need them any more.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, with_config

from fsjoule.host.inside import MIB
from fsjoule.host.json_text import json_text
from fsjoule.store.objects.bucket import Bucket, Found
from fsjoule.store.schemas import STRICT, Kind

PUSHES: Final = "pushes"
_MOST_BYTES: Final = 8 * MIB
_KEY: Final = re.compile(rf"{PUSHES}/[A-Za-z0-9_.-]+\.json")


@dataclass(frozen=True, slots=True)
class _Intent:
    objects: tuple[str, ...]


def write_intent(bucket: Bucket, name: str, objects: Collection[str]) -> None:
    """Name the objects that the run `name` will have."""
    content = json_text(_INTENT.adapter, _Intent(tuple(sorted(objects))))
    bucket.put(f"{PUSHES}/{name}-{secrets.token_hex(4)}.json", content)


def listed_intents(bucket: Bucket) -> Iterator[Found]:
    return (found for found in bucket.list(PUSHES) if _KEY.fullmatch(found.key))


def read_intent(bucket: Bucket, key: str) -> tuple[str, ...]:
    """The objects that a push has named; none if it is gone or damaged, as that of a push that was cut short."""
    found = bucket.get(key, at_most=_MOST_BYTES)
    try:
        return () if found is None else _INTENT.read(_INTENT.parse(found[0])[1]).objects
    except ValueError:
        return ()


_INTENT: Final = Kind(
    TypeAdapter(with_config(STRICT)(_Intent)), lambda _: None, at_most=_MOST_BYTES, most_entries=1 << 17
)
