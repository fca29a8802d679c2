"""Which benches use a meter, as far as files and running labs tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import yaml

from fsjoule.meter.instruments import SearchResult

_LAB: Final = "lab:"
_VIRTUAL_LAB: Final = "fsjoule_virtual_lab"
# Where a checkout has its environment files, and the configurations of its exporters.
_FOLDERS: Final = (("env", "**/*.yaml"), ("labgrid", "**/exporter.yaml"))


def users(found: Iterable[SearchResult], root: Path = Path()) -> dict[str, tuple[str, ...]]:
    """By address: the files below `root` that name the meter, with the target, place or group that has it.

    A file names a meter by its address, its port or its USB serial number, or asks for its virtual lab. A file that
    cannot be read names none.
    """
    named = [
        (f"{path.relative_to(root)} ({top})" if top else str(path.relative_to(root)), key, value)
        for folder, pattern in _FOLDERS
        for path in sorted((root / folder).glob(pattern))
        for top, key, value in _scalars(path)
    ]
    return {each.address: tuple(dict.fromkeys(who for who, *told in named if _is(each, *told))) for each in found}


def _is(found: SearchResult, key: str, value: str) -> bool:
    if key == _VIRTUAL_LAB:
        return found.address.partition("/")[0] == f"{_LAB}{value}"
    return value in (found.address, *found.device)


def _scalars(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each scalar of a YAML file, with the key before it and the target or group that it stands in."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    if not isinstance(root, yaml.MappingNode):
        return
    for name, node in root.value:
        if name.value == "targets" and isinstance(node, yaml.MappingNode):
            for target, inner in node.value:
                yield from ((target.value, *each) for each in _inside(inner))
        else:
            top = "" if name.value == "options" else str(name.value)
            yield from ((top, *each) for each in _inside(node))


def _inside(node: yaml.Node, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, str(node.value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _inside(each, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _inside(value, str(name.value))
