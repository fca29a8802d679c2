"""No module imports itself by way of others: a reader can begin at the bottom."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

# They take each other only for type checkers, and are to be parted.
_KNOWN = {
    ("fsjoule.model.trace", "fsjoule.model.meter"),  # a trace names its meter's facts, one of whose kinds is INA219's
    ("fsjoule.lab.login", "fsjoule.lab.strategy"),  # login is a part of the strategy
}


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle; empty without any."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_there_is_no_circle_of_modules() -> None:
    graph = grimp.build_graph("fsjoule", cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    for importer, imported in _KNOWN:
        imports[importer].remove(imported)  # KeyError: it is mended, so remove it from the list
    assert circle(imports) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
