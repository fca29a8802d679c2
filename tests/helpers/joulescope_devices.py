"""Emulated Joulescopes in place of those at USB."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from fsjoule.virtual.instruments.joulescope import Device, EmulatedDriver


@contextmanager
def joulescopes(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> Generator[None]:
    """The maker's driver with these devices at USB."""
    with monkeypatch.context() as patched:
        patched.setattr("pyjoulescope_driver.Driver", type("Driver", (EmulatedDriver,), {"devices": devices}))
        yield
