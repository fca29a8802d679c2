"""Labels of series in tables and charts, and counts in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.plan import SeriesKey

_ADDRESS: Final = re.compile(r"(https?)?://([^/\s]*)([^?#\s]*)", re.IGNORECASE)
_KEY: Final = r"(?:pass|pwd|token|secret|signature|\bsig\b|credential|key|auth)"
_QUERY: Final = re.compile(rf"([?&;#](?:(?!{_KEY})[^=?&;#\s])*{_KEY}[^=?&;#\s]*=)[^&\s]*", re.IGNORECASE)
# An address of another computer stays; a path of this one keeps its last name: behind a sign, `~/`, `../` or `file://`.
_IN_PATH: Final = r"(?:[^/=@,:;\s]|[:;\s](?![/~]|\.\./))"
_FOLDERS: Final = re.compile(
    rf"(?<![\w+.-])(?P<address>(?!file:)[\w+.-]+://[^\s/?#,][^\s?#,]*)"
    rf"|(^|[=@,:;?&#\s\"'(])(?:~{_IN_PATH}*(?=/)|(?:[^/=@,:;?&#\s\"'(]+/)*\.\.(?=/))?(?:/{_IN_PATH}*)*/(?=[^/])"
)


def series_labels(keys: Iterable[SeriesKey]) -> dict[SeriesKey, str]:
    """The filesystem's name, with its options if the run has the filesystem with several sets of options.

    With the layers below it, if any: `ext4 on dm-crypt`.
    """
    keys = list(keys)
    variants: dict[tuple[str, bool], set[tuple[str, ...]]] = {}
    for key in keys:
        # A card's root has other options than a filesystem on scratch; that alone is no second set.
        variants.setdefault((key.filesystem_title, key.on_root), set()).add(key.make_options + key.mount_options)
    labels: dict[SeriesKey, str] = {}
    for key in keys:
        options = " ".join(key.make_options + key.mount_options) or "default"
        several = len(variants[key.filesystem_title, key.on_root]) > 1
        labels[key] = f"{key.filesystem_title} ({options})" if several else key.filesystem_title
        labels[key] += f" on {key.stack}" if key.stack else ""
    return labels


def counted(count: int, what: str, plural: str = "") -> str:
    """`1 pair`, `2 pairs`."""
    return f"{count} {what if count == 1 else plural or f'{what}s'}"


def listed(given: str | Iterable[str] | None, *, option: str = "") -> tuple[str, ...]:
    """The names in the list or lists of an option, with commas, each once.

    Raises ConfigError for a comma with no name on one side: it may be missing.
    """
    return tuple(dict.fromkeys(pieces(given, option=option)))


def pieces(given: str | Iterable[str] | None, *, option: str = "") -> list[str]:
    """As `listed`, with what is there twice."""
    texts = [given] if isinstance(given, str) else given or ()
    found: list[str] = []
    for text in texts:
        parts = [part.strip() for part in text.split(",")]
        names = [part for part in parts if part]
        if names and names != parts:
            raise ConfigError(
                f"{option} {text!r} has an empty name".strip(), hint=f"{option} {','.join(names)}".strip()
            )
        found += names
    return found


def without_passwords(words: Iterable[str]) -> tuple[str, ...]:
    """A command line that may be kept and shown: `***` for each password or token in an address."""
    return tuple(_QUERY.sub(r"\1***", _ADDRESS.sub(_without_password, word)) for word in words)


def without_folders(words: Iterable[str]) -> tuple[str, ...]:
    """A command line for readers on the network: where this computer has its files is nobody's business there."""
    return tuple(_FOLDERS.sub(r"\g<address>\2", word) for word in words)


def _without_password(found: re.Match[str]) -> str:
    """scheme://USER:***@HOST, and of the web without the user, who may be a token.

    SQLAlchemy takes a password with any sign but `@`, others one with `@`: it ends at the last, where a path may be.
    """
    web, host, path = found.groups()
    user, colon, _ = host.partition(":")
    end = (host + path).rfind("@") if colon else host.rfind("@")
    has_password = bool(colon) and end > len(user)
    if end < 0 or not (web or has_password):
        return found[0]
    return f"{web or ''}://{'' if web else user + colon}***{(host + path)[end:]}"
