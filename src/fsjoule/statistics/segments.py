"""The one function of ruptures that is used here, without the rest of it.

`import ruptures` brings in scipy's statistics, signals and spatial trees, which takes seconds on a small machine; the
detector behind `KernelCPD` is a compiled module that needs none of them. It is loaded by itself where it is found, and
in the public way where it is not: a test holds both to the same answers.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from fsjoule.statistics.ratios import Floats

_MODULE: Final = "ruptures.detection._detection.ekcpd"

# Values of shape (n, 1), the penalty, the least points of a segment; gives for each end where its last segment starts.
_Detector = Callable[[Floats, float, int], Sequence[int]]


def segment_starts(values: Floats, *, penalty: float, least_points: int) -> list[int]:
    """Where segments start, but for the first: the exact minimum of squared distances plus `penalty` a change."""
    detector = _compiled()
    if detector is None:
        return publicly(values, penalty=penalty, least_points=least_points)
    path = detector(values[:, None], penalty, least_points)
    starts: list[int] = []
    at = path[len(values)]
    while at > 0:
        starts.append(int(at))
        at = path[at]
    return starts[::-1]


def publicly(values: Floats, *, penalty: float, least_points: int) -> list[int]:
    """The same by ruptures' public interface."""
    ruptures: Any = importlib.import_module("ruptures")
    detector = ruptures.KernelCPD(kernel="linear", min_size=least_points)
    return cast("list[int]", detector.fit(values[:, None]).predict(pen=penalty))[:-1]


@cache
def _compiled() -> _Detector | None:
    top = importlib.util.find_spec("ruptures")  # does not import it
    folder = Path(top.origin).parent if top and top.origin else Path()
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        file = folder.joinpath(*_MODULE.split(".")[1:]).with_suffix(suffix)
        if file.is_file():
            loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(file))
            spec = importlib.util.spec_from_file_location(_MODULE, file, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return cast("_Detector | None", getattr(module, "ekcpd_pelt_L2", None))
    return None
