"""Suites and publications, found in the modules of `definitions/`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar

from fsjoule.suites import definitions

T = TypeVar("T")


def defined(kind: type[T]) -> list[T]:
    """All objects of this type that the modules define, by the modules' names."""
    names = [module.name for module in pkgutil.iter_modules(definitions.__path__)]
    modules = [importlib.import_module(f"{definitions.__name__}.{name}") for name in names]
    return [each for module in modules for each in vars(module).values() if isinstance(each, kind)]
