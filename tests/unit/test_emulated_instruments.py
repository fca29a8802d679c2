"""The emulated instruments of a virtual lab: their programs, their addresses, and the load that they show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from labgrid import Target

from fsjoule.errors import ConfigError
from fsjoule.hooks import GROUP, Offer
from fsjoule.host.paths import project_dir
from fsjoule.lab import instruments as drivers
from fsjoule.meter.instruments import INSTRUMENTS, InstrumentKind
from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.board.power import FeedWriter
from fsjoule.virtual.instruments.emulator import instruments_of, program_of
from fsjoule.virtual.instruments.load import FeedLoad, Moments
from fsjoule.virtual.lab.instruments import programs, resources, variables
from fsjoule.virtual.lab.services import board_template


@pytest.fixture(name="board")
def _board() -> BoardConfig:
    return board_template("instruments")


def test_each_instrument_is_a_program_beside_one_adapter(board: BoardConfig, tmp_path: Path) -> None:
    names = [each.name for each in programs(board, tmp_path)]
    assert names[0] == "adapter"
    assert {"iio", "powercap", "scpi"} <= set(names)
    assert not {"joulescope", "ppk2"} & set(names)  # one is in its user's process, one has a wire of its own
    ppk2 = {each.name: each.files for each in programs(board_template("rpi3-ppk2"), tmp_path)}
    assert ppk2["ppk2"] == (tmp_path / "ppk2", board_template("rpi3-ppk2").ppk2_pin[0])
    assert list(programs(board_template("board"), tmp_path)) == []


def test_the_exporter_is_told_their_addresses(board: BoardConfig, tmp_path: Path) -> None:
    kinds = instruments_of(board)
    for kind in kinds:
        (tmp_path / kind).write_text(f"{kind}:there")
    addresses = {f"AT_{kind}": f"{kind}:there" for kind in kinds}
    assert resources(board, tmp_path, 2) == {
        "ADAPTER": "1",
        "PORTS": "",
        "INSTRUMENTS": " ".join(kinds),
        **addresses,
        "AT_joulescope": "joulescope:js220/SIM002",  # of the second board
    }
    assert resources(board_template("ppk2"), tmp_path, 1) == {
        "ADAPTER": "1",
        "PORTS": "ppk2",
        "INSTRUMENTS": "",
        "AT_ppk2": str(tmp_path / "ppk2"),
    }
    assert not any(resources(board_template("board"), tmp_path, 1).values())


def test_a_package_whose_emulator_is_broken_is_left_out_of_all(
    board: BoardConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = instruments_of(board)
    broken = InstrumentKind("broken", "broken:", "broken:", "a broken one", "", "", "a_package_that_is_broken")
    offers = {name: Offer(GROUP, row) for name, row in INSTRUMENTS.items()}
    monkeypatch.setattr(INSTRUMENTS, "_offers", {**offers, "broken": Offer("stranger 1.0", broken)})
    assert instruments_of(board) == kinds
    assert "a_package_that_is_broken:EMULATOR cannot be loaded" in caplog.text
    with pytest.raises(ConfigError, match="instrument broken of package stranger"):
        program_of("broken", board, Path())


def test_instrument_files_of_the_users_own_win(board: BoardConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSJOULE_METERS_DIR", raising=False)
    assert variables(board)["FSJOULE_METERS_DIR"] == str(project_dir() / "labgrid" / "virtual" / "meters")
    monkeypatch.setenv("FSJOULE_METERS_DIR", "/somewhere/else")
    assert variables(board)["FSJOULE_METERS_DIR"] == "/somewhere/else"
    assert variables(board_template("board")) == {}


@pytest.mark.parametrize(
    ("instruments", "bound", "says"),
    [
        ((), {}, r"InstrumentDriver has no address\n.*give it one, or the place an Instrument"),
        (("a", "b"), {}, r"bound to none of the place's instruments: a, b\n.*bindings: \{instrument: a\}"),
        (("a", "b"), {"instrument": "c"}, r"bound to none of the place's instruments: a, b"),
    ],
)
def test_a_driver_without_an_address_says_what_it_lacks(
    instruments: tuple[str, ...], bound: dict[str, str], says: str
) -> None:
    target_class: Any = Target
    target = target_class("main")
    make: Any = (drivers.Instrument, drivers.InstrumentDriver)
    for name in instruments:
        make[0](target, name, address=f"visa:{name}")
    target.set_binding_map(bound)
    driver = make[1](target, None)
    with pytest.raises(ConfigError, match=says):
        driver.opened()


def test_an_address_is_checked_when_it_is_read() -> None:
    with pytest.raises(ValueError, match="an address is joulescope:MODEL/SERIAL"):
        cast("Any", drivers.Instrument)(None, None, address="ina226 somewhere")


def test_a_moment_of_the_past_has_the_load_of_that_time(tmp_path: Path) -> None:
    feed, begin_ns = FeedWriter(tmp_path / "feed"), time.monotonic_ns()
    for number in range(100):
        feed.append(begin_ns + number * 1_000_000, 5.0, number * 0.01)
    asked = Moments(tmp_path / "feed")
    # Later and earlier again, as a chip's turns are averaged.
    for number in (60, 20, 95, 20):
        assert asked.amperes((begin_ns + (number - 0.5) * 1e6) * 1e-9) == pytest.approx(number * 0.01)


def test_a_load_forgets_what_it_need_not_keep(tmp_path: Path) -> None:
    feed, begin_ns = FeedWriter(tmp_path / "feed"), time.monotonic_ns()
    for number in range(100):
        feed.append(begin_ns + number * 1_000_000, 5.0, number * 0.01)
    later, earlier = (np.array([begin_ns + at_ms * 1_000_000 - 500_000]) for at_ms in (60, 50))
    for keep_s, wanted in ((0.0, 0.60), (0.02, 0.50)):
        load = FeedLoad(tmp_path / "feed", keep_s=keep_s)
        load.known_until_ns()
        load.amperes(later)
        assert load.amperes(earlier)[0] == pytest.approx(wanted)
