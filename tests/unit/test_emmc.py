"""What an eMMC says of itself, and its cache that is switched off for a while."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from fake_bench import answer, bench_of, entry, traced

from fsjoule.bench.emmc import Emmcs, look
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.scratch import name_of
from fsjoule.errors import BoardError, ConfigError
from fsjoule.model import CARD, MIB, Storage
from fsjoule.model.emmc import EmmcFacts, EmmcState, parse_attributes, parse_ext_csd
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeMeter, FakeShell

# All bytes that QEMU 10.0 sets (the eMMC of its machine rainier-bmc), as Linux 6.12 read them.
QEMU = {
    175: 1,
    179: 8,
    183: 1,
    185: 1,
    192: 3,
    194: 2,
    196: 3,
    205: 70,
    206: 70,
    207: 70,
    208: 70,
    209: 70,
    210: 70,
    213: 240,
    214: 31,
    217: 1,
    219: 1,
    220: 1,
    221: 1,
    222: 1,
    223: 1,
    224: 1,
    225: 1,
    226: 8,
    504: 1,
}
# eMMC 5.1 with a cache of 512 KiB, which is on.
REAL = {33: 1, 163: 2, 192: 8, 231: 0x55, 250: 0x10, 267: 1, 268: 2, 269: 1, 502: 1}


def register(values: dict[int, int]) -> str:
    return bytes(values.get(at, 0) for at in range(512)).hex() + "\n"


def state(values: dict[int, int]) -> EmmcState:
    parsed = parse_ext_csd(register(values))
    assert parsed is not None
    return parsed


@dataclass
class Card:
    """A board's card, which answers as an eMMC with these bytes does; None is an SD card."""

    values: dict[int, int] | None
    asked: list[str] = field(default_factory=list[str])
    obeys: bool = True

    def answer(self, argv: tuple[str, ...]) -> CommandResult:
        if argv[:2] == ("sh", "-c") and "ext_csd" in argv[2]:
            return CommandResult(argv, 0, "" if self.values is None else register(self.values))
        if argv[:2] == ("mmc", "cache"):
            self.asked.append(argv[2])
            if not self.obeys:
                return CommandResult(argv, 127, "sh: mmc: not found\n")
            assert self.values is not None
            self.values = {**self.values, 33: int(argv[2] == "enable")}
        elif argv[:1] == ("mkfs.ext4",):
            self.asked.append("mkfs")
        return answer(argv)


def test_a_card_of_version_5_1_tells_cache_wear_and_abilities() -> None:
    real = state(REAL)
    assert (real.cache_kbit, real.cache_on, real.bkops, real.life_a, real.life_b) == (4096, True, "auto", 2, 1)
    assert real.abilities == "eMMC 5.1, cache of 4096 Kbit on, TRIM, discard, sanitize, BKOPS auto"
    assert real.wear == "up to 20 % of its life is used, reserved blocks normal"


def test_qemus_card_has_neither_cache_nor_wear_nor_trim() -> None:
    facts = EmmcFacts(state(QEMU), state(QEMU))
    assert facts.text == "eMMC 4.3, no cache, no TRIM, no BKOPS; it tells no wear"


def test_wear_before_and_after_is_told_where_it_differs() -> None:
    facts = EmmcFacts(state(REAL), state({**REAL, 267: 2, 268: 11}))
    assert "; up to 20 % of its life is used, reserved blocks normal before, " in facts.text
    assert facts.text.endswith("before, its life is used up, reserved blocks 80 % used after")


@pytest.mark.parametrize("worn", [{268: 11}, {267: 3}, {267: 3, 269: 11}])
def test_a_card_is_worn_out_by_either_register(worn: dict[int, int]) -> None:
    assert state({**REAL, **worn}).worn_out
    assert not state({**REAL, 267: 2, 268: 10}).worn_out


@pytest.mark.parametrize("text", ["", "00" * 511, "zz" * 512, "cat: ext_csd: No such file or directory"])
def test_what_is_no_register_tells_nothing(text: str) -> None:
    assert parse_ext_csd(text) is None
    assert parse_attributes(text) is None


def test_without_debugfs_the_kernels_attributes_tell_the_wear() -> None:
    shell = FakeShell(lambda argv: CommandResult(argv, 0, "0x8\n0x01\n0x0b 0x01\n"))
    seen = look(shell, "mmcblk0")
    assert seen == EmmcState(8, life_a=11, life_b=1, pre_eol=1)
    assert EmmcState(8).abilities == "eMMC 5.1"


@pytest.mark.parametrize(
    ("values", "says"),
    [(None, "is no eMMC"), (QEMU, "has no cache"), ({192: 8}, "has no cache")],
)
def test_a_card_without_cache_is_refused_before_it_is_written(values: dict[int, int] | None, says: str) -> None:
    card = Card(values)
    with pytest.raises(BoardError, match=rf"card \(mmcblk1\) {says}, .*: nothing was written") as caught:
        Emmcs(FakeShell(card.answer)).without_cache(CARD, "mmcblk1")
    assert not caught.value.transient
    assert not card.asked


def test_a_cache_that_stays_on_is_told_with_the_programs_words() -> None:
    emmcs = Emmcs(FakeShell(Card(dict(REAL), obeys=False).answer))
    with pytest.raises(BoardError, match=r"the cache of card \(mmcblk1\) stays on: sh: mmc: not found(.|\n)*mmc-utils"):
        emmcs.without_cache(CARD, "mmcblk1")


def test_a_cache_is_off_while_its_storage_is_measured_and_then_on() -> None:
    card = Card(dict(REAL))
    shell = FakeShell(card.answer)
    bench = bench_of(
        shell=shell, meter=FakeMeter(now=lambda: traced(onboard.start_mark(one.number), onboard.stop_mark(one.number)))
    )
    first = entry(bench, "mkfs")
    for one in (replace(first, storage="card:nocache"), replace(first, number=first.number + 50)):
        bench.measure(one)
    assert [m.series.storage for m in bench.results] == ["card without its cache", "card"]
    assert bench.run.emmcs == {CARD: EmmcFacts(state(REAL), state(REAL))}
    bench.finish("test")
    assert card.asked == ["disable", "enable"]


def test_a_cache_that_came_on_again_makes_it_invalid() -> None:
    card = Card(dict(REAL))

    def resets(argv: tuple[str, ...]) -> CommandResult:
        if argv[:1] == ("mkfs.ext4",):
            card.values = dict(REAL)
        return card.answer(argv)

    bench = bench_of(shell=FakeShell(resets), meter=FakeMeter())
    measured = bench.measure(replace(entry(bench, "mount"), storage="card:nocache"))
    assert "the eMMC's cache came on again: Linux has started the card anew" in measured.invalid_reasons


def test_a_worn_card_leaves_a_note_at_each_measurement() -> None:
    bench = bench_of(shell=FakeShell(Card({**REAL, 267: 3}).answer), meter=FakeMeter())
    measured = bench.measure(entry(bench, "mkfs"))
    said = (
        "the eMMC card is worn out (up to 20 % of its life is used, reserved blocks urgent): its figures are doubtful"
    )
    assert said in measured.notes


def test_the_setting_of_a_storage_is_planned_and_known_again() -> None:
    planning = Planning(("ext4",), ("6.1",), 1, 1, storages=("card", "card:nocache"))
    slugs = {each.slug for each in plan_entries(suite("quick"), planning).entries}
    assert {"ext4-write-16k", "ext4-write-16k-card.nocache"} <= slugs
    assert name_of("mmc1 QEMU! without its cache", ["nvme"]) == "card:nocache"
    assert name_of("emmc DG4008 without its cache", ["emmc"]) == "emmc:nocache"
    with pytest.raises(ConfigError, match="unknown storage device of this board 'card:fast'"):
        plan_entries(suite("quick"), replace(planning, storages=("card:fast",)))
    stick = replace(planning, further={"stick": Storage("sda", 512 * MIB)}, storages=("stick:nocache",))
    with pytest.raises(ConfigError, match="stick is sda, and nocache is for eMMCs"):
        plan_entries(suite("quick"), stick)
