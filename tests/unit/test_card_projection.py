"""What a card would take is computed from the requests that a board counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsjoule.bench.judge import project
from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.lab.environment import read_card_model
from fsjoule.model import (
    KIB,
    MIB,
    CardEnergies,
    CardModel,
    CardTimes,
    DeviceCounters,
    Energy,
    EnergyBudget,
    FlashCounters,
    Value,
)
from fsjoule.virtual.board.config import BoardConfig

CARD = CardModel(
    "c",
    CardTimes(read_request_us=100, read_us_per_mib=1000, write_request_us=200, write_us_per_mib=3000, flush_us=5000),
    CardEnergies(read_request_uj=10, read_uj_per_mib=2000, write_request_uj=20, write_uj_per_mib=4000, flush_uj=300),
)
COUNTERS = DeviceCounters(
    reads=10, read_bytes=2 * MIB, writes=5, written_bytes=8 * MIB, discards=9, flushes=2, request_ms=77
)
_NOTHING = EnergyBudget(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def energy(gross_mj: float, idle_w: float) -> Energy:
    none = Value(0.0, 0.0)
    return Energy(Value(gross_mj, 0.0), none, Value(idle_w, 0.0), none, 0.0, None, 0.0, 0, 0, _NOTHING, _NOTHING)


def test_by_hand() -> None:
    projected = project(CARD, COUNTERS, moved_bytes=4 * MIB, duration_s=0.5, energy=energy(600.0, 1.1))
    card_s = (10 * 100 + 2 * 1000 + 5 * 200 + 8 * 3000 + 2 * 5000) * 1e-6
    metered_mj, unmetered_mj = 2 * 2.0 + 8 * 4.0, 10 * 0.01 + 5 * 0.02 + 2 * 0.3
    assert projected.card == "c"
    assert projected.card_s == pytest.approx(card_s)
    assert projected.card_mj == pytest.approx(metered_mj + unmetered_mj)
    assert projected.card_mib_per_s == pytest.approx(4 / card_s)
    assert projected.card_mj_per_mib == pytest.approx((metered_mj + unmetered_mj) / 4)
    assert projected.both_s == pytest.approx(0.5 + card_s)
    assert projected.both_mib_per_s == pytest.approx(4 / (0.5 + card_s))
    # What the meter has seen of the card is not counted twice.
    assert projected.both_mj == pytest.approx(600.0 + 1100 * card_s + unmetered_mj)
    assert projected.both_mj_per_mib == pytest.approx((600.0 + 1100 * card_s + unmetered_mj) / 4)


def test_what_is_not_there_is_none() -> None:
    nothing = DeviceCounters(0, 0, 0, 0, 0, 0, 0)
    idle = project(CARD, nothing, moved_bytes=MIB, duration_s=0.25, energy=None)
    assert (idle.card_s, idle.card_mj, idle.card_mib_per_s, idle.both_s) == (0.0, 0.0, None, 0.25)
    assert (idle.both_mj, idle.both_mj_per_mib) == (None, None)
    assert idle.both_mib_per_s == pytest.approx(4.0)
    timed = project(CARD, COUNTERS, moved_bytes=0, duration_s=0.25, energy=None)
    assert (timed.card_mib_per_s, timed.card_mj_per_mib, timed.both_mib_per_s) == (None, None, None)
    assert timed.card_s > 0


def test_raw_flash_erases_and_its_pages_are_not_metered() -> None:
    nand = read_card_model("slc-nand")
    flash = FlashCounters(8, 128 * MIB, 128 * KIB, corrected_bits=0, failed_pages=0, bad_blocks=0)
    counters = DeviceCounters(512, MIB, 1024, 2 * MIB, 0, 0, 0, flash=flash)
    projected = project(nand, counters, moved_bytes=MIB, duration_s=1.0, energy=energy(1200.0, 1.1))
    assert projected.card_s == pytest.approx(512 * 25e-6 + 1024 * 200e-6 + 3 * 26.2e-3 + 8 * 2e-3)
    assert projected.both_mj == pytest.approx(1200.0 + 1100 * projected.card_s + projected.card_mj)
    assert projected.card_mj == pytest.approx(512 * 2.9e-3 + 1024 * 11.6e-3 + 8 * 99e-3)


def test_more_requests_for_the_same_bytes_take_longer() -> None:
    split = replace(COUNTERS, writes=50)
    slow, fast = (project(CARD, c, moved_bytes=MIB, duration_s=1.0, energy=None) for c in (split, COUNTERS))
    assert slow.card_s - fast.card_s == pytest.approx(45 * 200e-6)


def test_the_emmc_and_the_boards_power_model_agree_on_what_a_mib_costs() -> None:
    emmc = read_card_model("emmc")
    power = BoardConfig.from_toml(project_dir() / "labgrid" / "virtual" / "deterministic.toml").power
    assert power.card_read_mj_per_mib == emmc.energy.read_uj_per_mib / 1e3
    assert power.card_write_mj_per_mib == emmc.energy.write_uj_per_mib / 1e3


def test_the_emmc_is_about_as_fast_as_the_papers() -> None:
    """Random reads of 16, 32 and 64 KiB at 14.3, 20.0 and 25.3 MiB/s, of which the kernel's part is a third or less."""
    emmc = read_card_model("emmc")
    for kib, published in ((16, 14.3), (32, 20.0), (64, 25.3)):
        counters = DeviceCounters(MIB // (kib << 10), MIB, 0, 0, 0, 0, 0)
        alone = project(emmc, counters, moved_bytes=MIB, duration_s=0.0, energy=None).card_mib_per_s
        assert alone is not None
        assert published < alone < 1.5 * published


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(ConfigError, match="no card model 'floppy'"):
        read_card_model("floppy")
