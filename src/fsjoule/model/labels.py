"""What workloads, sizes and series are called in tables and charts."""

from __future__ import annotations

from collections.abc import Iterable

from fsjoule.model import KIB, MIB, FioWorkload, SeriesKey, TimedWorkload, Workload


def workload_label(workload: Workload) -> str:
    """A workload in words: `randread 16 KiB`, `copy 24 MiB`."""
    if isinstance(workload, TimedWorkload):
        size = f" {size_label(workload.size_bytes)}" if workload.size_bytes else ""
        return workload.operation.value + size
    if not isinstance(workload, FioWorkload):
        return workload.slug
    extras = workload.slug.split("-")[2:]
    return " ".join([workload.operation.value, size_label(workload.block_size_bytes), *extras])


def size_label(size_bytes: int) -> str:
    """A size in the largest unit that leaves it whole."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def series_labels(keys: Iterable[SeriesKey]) -> dict[SeriesKey, str]:
    """The filesystem's name; with its options for filesystems that the run has with different ones."""
    keys = list(keys)
    variants: dict[tuple[str, bool], set[tuple[str, ...]]] = {}
    for key in keys:
        # A card's root is made otherwise than a filesystem on scratch: that alone tells no two rows apart.
        variants.setdefault((key.filesystem, key.on_root), set()).add(key.make_options + key.mount_options)
    labels: dict[SeriesKey, str] = {}
    for key in keys:
        options = " ".join(key.make_options + key.mount_options) or "default"
        several = len(variants[key.filesystem, key.on_root]) > 1
        labels[key] = f"{key.filesystem} ({options})" if several else key.filesystem
    return labels
