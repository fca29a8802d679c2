"""The table of instruments: each row has its modules, and each search its limit."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsjoule.errors import ConfigError, MeterError
from fsjoule.meter.instruments import INSTRUMENTS, InstrumentKind, SearchResult, kind_at
from fsjoule.meter.links.streams import opener
from fsjoule.runs import meter as meters
from fsjoule.runs.meter import users
from fsjoule.virtual.instruments.emulator import Emulator


@pytest.mark.parametrize("kind", INSTRUMENTS.values(), ids=list(INSTRUMENTS))
def test_a_row_has_modules_that_open_and_find_state_errors_emulate(kind: InstrumentKind) -> None:
    link, errors = kind.link(), kind.errors()
    assert list(inspect.signature(link.meter).parameters) == ["name"]
    assert list(inspect.signature(link.find).parameters) == []
    assert list(inspect.signature(errors.errors).parameters) == ["info", "marks"]
    assert isinstance(kind.emulator(), Emulator)
    assert kind.form.startswith(kind.prefix)
    assert kind_at(f"{kind.prefix}x") is INSTRUMENTS.get(kind.name) is kind


def test_a_wrong_address_is_answered_with_all_forms() -> None:
    with pytest.raises(ConfigError) as failed:
        opener("nonsense")
    forms = (kind.form for kind in INSTRUMENTS.values())
    assert all(each in str(failed.value.hint) for each in ("rfc2217://", "lab:NAME", *forms))


def test_an_address_of_our_own_meter_is_of_no_kind() -> None:
    assert kind_at("/dev/ttyUSB0") is kind_at("lab:virtual") is kind_at("host:4711") is None


def _kinds(monkeypatch: pytest.MonkeyPatch, **finds: Any) -> None:
    def link(kind: InstrumentKind) -> Any:
        return SimpleNamespace(find=finds[kind.name])

    monkeypatch.setattr(meters, "_own_meters", lambda: [SearchResult("/dev/ttyUSB0", "serial port", "FSJ-1")])
    rows = {name: InstrumentKind(name, f"{name}:", f"{name}:X", name, "", "", "") for name in finds}
    monkeypatch.setattr(meters, "INSTRUMENTS", rows)
    monkeypatch.setattr(InstrumentKind, "link", link)


def test_all_searches_run_at_once_and_a_failed_one_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=30)

    def found() -> list[SearchResult]:
        together.wait()
        return [SearchResult("two:1", "a desk", "T1")]

    def failed() -> list[SearchResult]:
        together.wait()
        raise MeterError("its library is broken")

    _kinds(monkeypatch, one=failed, two=found)
    said = {each.address: each.name or each.why_not for each in meters.find_meters()}
    assert said == {"/dev/ttyUSB0": "FSJ-1", "one:": "its library is broken", "two:1": "T1"}


def test_an_error_of_another_kind_ends_one_search_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed() -> list[SearchResult]:
        raise RuntimeError("a library's own error")

    _kinds(monkeypatch, one=failed)
    _, found = meters.find_meters()
    assert found.why_not == "the search failed: a library's own error"


def test_a_search_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(meters, "_SEARCH_S", 0.05)
    _kinds(monkeypatch, hanging=lambda: [SearchResult("late:1", str(over.wait(30)))])
    _, hung = meters.find_meters()
    over.set()
    assert (hung.address, hung.why_not) == ("hanging:", "the search takes too long")


def test_the_files_of_a_checkout_tell_which_bench_uses_a_meter(tmp_path: Path) -> None:
    files = {
        "env/lab.yaml": "options: {fsjoule_virtual_lab: virtual}\ntargets: {main: {drivers: {MeterDriver: {}}}}\n",
        "env/boards/here.yaml": "targets:\n  main:\n    resources:\n      RawSerialPort: {port: /dev/ttyUSB3}\n",
        "env/there.yaml": "targets: {main: {resources: {RemotePlace: {name: !template $LG_PLACE}}}}\n",
        "env/damaged.yaml": "targets: [",
        "labgrid/rpi4/exporter.yaml": "rpi4:\n  meter: {cls: USBSerialPort, match: {ID_SERIAL_SHORT: A50285BI}}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [
        SearchResult("lab:virtual/2", "a lab", "SIM-2"),
        SearchResult("/dev/ttyUSB0", "serial port", "FSJ-1", device=("A50285BI",)),
        SearchResult("/dev/ttyUSB3", "serial port", "FSJ-2"),
        SearchResult("virtual", "an address that is a lab's name", "X"),
    ]
    assert users(found, tmp_path) == {
        "lab:virtual/2": ("env/lab.yaml",),
        "/dev/ttyUSB0": ("labgrid/rpi4/exporter.yaml (rpi4)",),
        "/dev/ttyUSB3": ("env/boards/here.yaml (main)",),
        "virtual": (),
    }
