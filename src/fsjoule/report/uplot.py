"""uPlot, the library that draws charts in a page: its script and style sheet, from the package that carries them.

docs/adr/0021-uplot-draws-trends.md says why this library.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from markupsafe import Markup

from fsjoule.errors import FsjouleError
from fsjoule.host.extras import need


def script() -> Markup:
    """The library's script, for the inside of a page's <script>. Raises FsjouleError if the package is not whole."""
    return _read("uPlot.iife.js")


def style_sheet() -> Markup:
    """The library's rules, for the inside of a page's <style>. Raises as `script` does."""
    return _read("uPlot.min.css")


def _read(name: str) -> Markup:
    need("pages", "uplot")
    # Importing the package would import numpy, and what shows plots in notebooks.
    found = importlib.util.find_spec("uplot")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "static" / name
        if file.is_file():
            return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - the library's own
    raise FsjouleError(f"the package uplot-python has no {name}", hint="install the package uplot-python again")
