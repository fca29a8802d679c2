"""axe-core, which judges how accessible a page is, from npm by the lock file in tests/browser/npm."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from browser import Browser

from fsjoule.report.allure.generator import install_locked

_LOCKED = Path(__file__).parents[1] / "browser" / "npm"
_SERIOUS = ("serious", "critical")


def serious_findings(opened: Browser) -> list[str]:
    """The serious and critical findings on the page that is open, each with the first elements that it concerns."""
    opened.script(_source())
    found: list[dict[str, Any]] = opened.script(
        "return axe.run(document, {resultTypes: ['violations']}).then((told) => told.violations)"
    )
    return [
        f"{one['id']}: {one['help']}: {'; '.join(str(node['html'])[:160] for node in one['nodes'][:3])}"
        for one in found
        if one["impact"] in _SERIOUS
    ]


@cache
def _source() -> str:
    locked = {file.name: file.read_bytes() for file in _LOCKED.iterdir()}
    _, folder = install_locked("axe-core", locked)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
