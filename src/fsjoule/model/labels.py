"""Labels of series in tables and charts, and counts in words."""

from __future__ import annotations

from collections.abc import Iterable

from fsjoule.errors import ConfigError
from fsjoule.model.plan import SeriesKey


def series_labels(keys: Iterable[SeriesKey]) -> dict[SeriesKey, str]:
    """The filesystem's name, with its options if the run has the filesystem with several sets of options."""
    keys = list(keys)
    variants: dict[tuple[str, bool], set[tuple[str, ...]]] = {}
    for key in keys:
        # A card's root has other options than a filesystem on scratch; that alone is no second set.
        variants.setdefault((key.filesystem, key.on_root), set()).add(key.make_options + key.mount_options)
    labels: dict[SeriesKey, str] = {}
    for key in keys:
        options = " ".join(key.make_options + key.mount_options) or "default"
        several = len(variants[key.filesystem, key.on_root]) > 1
        labels[key] = f"{key.filesystem} ({options})" if several else key.filesystem
    return labels


def counted(count: int, what: str, plural: str = "") -> str:
    """`1 pair`, `2 pairs`."""
    return f"{count} {what if count == 1 else plural or f'{what}s'}"


def listed(given: str | Iterable[str] | None, *, option: str = "") -> tuple[str, ...]:
    """The names in the list or lists of an option, with commas, each once.

    Raises ConfigError for a comma with no name on one side: it may be missing.
    """
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
    return tuple(dict.fromkeys(found))
