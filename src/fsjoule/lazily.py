"""Packages that import a part of themselves when a name of it is first asked for.

What scipy, alembic or Parquet take to import is seconds on a small machine: a command should pay for what it uses only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__` (PEP 562): its names, divided by blanks, by the module of it that has them.

    No name may be that of a module beside: once imported, the module would stand in its place.
    The package repeats these imports under TYPE_CHECKING, for those who read it: people, pyright, import-linter.
    """
    homes = {name: module for module, those in names.items() for name in those.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get
