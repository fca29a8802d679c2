"""A bench over fakes of the ports whose lab has faults: second tries, lost places, meters that change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from fake_bench import answer, bench_of, entry, runtime_s, traced

from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, InstrumentError, LabError, Part, PlaceLostError
from fsjoule.meter.protocol.trace_builder import ANOTHER_STREAM
from fsjoule.model import LabStep, MeterCalibration, RunStatus, Trace
from fsjoule.ports import CommandResult
from fsjoule.store.schemas import STEPS_FILE, decode_steps
from fsjoule.testing import FakeBoard, FakeHealth, FakeMeter, FakeShell, FakeStore


class Flooded(FakeShell):
    """A board whose console mixes other output into the files that are read from it."""

    def get(self, path: str) -> bytes:
        raise BoardError(f"the console damaged {path} on its way from the board, 3 times")


@pytest.mark.parametrize("slug", ["write-16k", "mkfs"])
def test_a_file_that_does_not_arrive_is_the_labs_fault_and_gets_a_second_try(slug: str) -> None:
    bench = bench_of(shell=Flooded(answer), meter=FakeMeter())
    with pytest.raises(BoardError, match="the console damaged"):
        bench.measure(entry(bench, slug))
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.boots == 2
    assert not bench.results


def test_a_transient_fault_is_given_a_second_try() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(None), faults=[BoardError("hung", transient=True)])
    assert bench.measure(entry(bench, "write-16k")).slug == "ext4-write-16k"
    assert isinstance(bench.board, FakeBoard)
    assert bench.board.boots == 2
    first, again = bench.board.seeds
    assert first == again


def test_attempts_that_failed_are_kept_with_what_the_lab_did() -> None:
    fault = BoardError("hung", console_tail=("Oops",), hint="look at it")
    store, bench = FakeStore(), bench_of(shell=FakeShell(answer), meter=FakeMeter(None), faults=[fault])
    bench = replace(bench, store=store)
    taken = [(LabStep("transition", "BoardStrategy", 1, 1, 2),), (LabStep("run", "LabgridShell", 1, 3, 4),)]
    bench.take_steps = lambda: taken.pop(0)
    wanted = entry(bench, "write-16k")
    bench.measure(wanted)
    (kept,) = bench.run.faults
    assert (kept.number, kept.transient, kept.bug, kept.hint) == (wanted.number, True, False, "look at it")
    assert "Oops" in kept.what
    assert [each.title for each in kept.steps] == ["transition"]
    assert store.runs[-1].faults == (kept,)
    (step,) = decode_steps(store.attachments[wanted.number][STEPS_FILE])
    assert (step.title, step.duration_ms) == ("run", 4)


@pytest.mark.parametrize(
    ("faults", "last", "kept"),
    [
        ([BoardError("hung", part=Part.CONSOLE)], None, ["console"]),
        ([BoardError("hung", part=Part.CONSOLE)] * 2, Part.CONSOLE, ["console"] * 2),
        ([BoardError("hung", part=Part.BOARD), BoardError("panicked")], None, ["board", None]),
    ],
)
def test_the_part_of_the_lab_that_failed_last_is_known_but_not_for_a_kernel_that_panics(
    faults: list[BoardError], last: Part | None, kept: list[str | None]
) -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S", "E")), faults=list(faults))
    with suppress(BoardError):
        bench.measure(entry(bench, "write-16k"))
    assert (bench.failed_part(metered=True), [each.part for each in bench.run.faults]) == (last, kept)


def test_a_board_that_cannot_be_switched_off_is_a_fault_of_its_power() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S", "E")))
    bench.measure(entry(bench, "write-16k"))
    assert bench.failed_part(metered=True) is None
    assert isinstance(bench.board, FakeBoard)

    def stuck() -> None:
        raise LabError("switching the board off failed", part=Part.POWER)

    bench.board.off = stuck
    bench.finish()
    assert bench.failed_part(metered=True) is Part.POWER


def test_a_meter_that_gave_no_measurement_its_energy_has_failed() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    assert bench.failed_part(metered=True) is None, "nothing is measured yet"
    bench.measure(entry(bench, "write-16k"))
    assert (bench.failed_part(metered=True), bench.failed_part(metered=False)) == (Part.METER, None)
    assert isinstance(bench.meter, FakeMeter)
    bench.meter.trace = traced("S", "E")
    bench.measure(entry(bench, "read-16k"))
    assert bench.failed_part(metered=True) is None


def test_what_is_no_fault_of_the_lab_is_kept_as_a_bug() -> None:
    def broken(_argv: tuple[str, ...]) -> CommandResult:
        raise ZeroDivisionError("by nothing")

    bench = bench_of(shell=FakeShell(broken), meter=FakeMeter(None))
    with pytest.raises(ZeroDivisionError):
        bench.measure(entry(bench, "write-16k"))
    (kept,) = bench.run.faults
    assert (kept.bug, kept.transient) == (True, False)
    assert kept.what.startswith("ZeroDivisionError: by nothing\n")
    assert "in broken" in kept.what


@pytest.mark.parametrize(("transient", "boots"), [(True, 2), (False, 1)])
def test_a_fault_that_stays_is_raised_with_the_board_off(boots: int, *, transient: bool) -> None:
    bench = bench_of(
        shell=FakeShell(answer), meter=FakeMeter(None), faults=[BoardError("hung", transient=transient)] * 2
    )
    with pytest.raises(LabError, match="hung"):
        bench.measure(entry(bench, "write-16k"))
    assert isinstance(bench.board, FakeBoard)
    assert (bench.board.boots, bench.board.powered) == (boots, False)


def taken_away(bench: BoardBench, when: Callable[[tuple[str, ...]], bool]) -> FakeBoard:
    """A board that somebody else takes as soon as it is asked for what `when` says."""
    board = bench.board
    assert isinstance(board, FakeBoard)

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if when(argv):
            board.lost = PlaceLostError("virtual", "ada has it")
        return answer(argv)

    board.shell.answer = answered
    return board


@pytest.mark.parametrize("program", ["mkfs.ext4", "mount", "cat", "dmesg"])
def test_a_place_that_is_lost_at_any_moment_ends_the_run_at_once_with_hands_off(program: str) -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    board = taken_away(bench, lambda argv: argv[0] == program)
    with pytest.raises(PlaceLostError, match="ada has it"):
        bench.measure(entry(bench, "write-16k"))
    assert board.boots == 1, "there is no second try"
    run = bench.finish()
    assert board.powered, "the board was left as it is"
    assert (run.status, run.abort_reason) == (RunStatus.ABORTED, board.lost and board.lost.what)
    assert [fault.what for fault in run.faults] == [run.abort_reason]
    assert isinstance(bench.store, FakeStore)
    assert not bench.store.measurements, "what may have been measured on another's board is not stored as ours"


def test_a_fault_on_a_board_that_was_taken_away_is_that_it_was() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(), faults=[BoardError("the board hung")])
    assert isinstance(bench.board, FakeBoard)
    boot = bench.board.boot

    def boot_and_lose(seed: int = 1) -> FakeShell:
        taken = taken_away(bench, lambda _argv: False)
        taken.lost = PlaceLostError("virtual", "ada has it")
        return boot(seed)

    bench.board.boot = boot_and_lose
    with pytest.raises(PlaceLostError, match="ada has it") as caught:
        bench.measure(entry(bench, "write-16k"))
    assert isinstance(caught.value.__cause__, BoardError)


def test_where_nobody_can_say_whose_the_board_is_nothing_is_measured_and_it_is_switched_off() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    assert isinstance(bench.board, FakeBoard)
    bench.board.lost = LabError("the coordinator cannot be reached", transient=True)
    with pytest.raises(LabError, match="the coordinator cannot be reached"):
        bench.measure(entry(bench, "write-16k"))
    assert bench.board.boots == 0
    assert not bench.board.powered
    assert len(bench.run.faults) == 2, "it was tried again: a coordinator may come back"


def test_what_died_in_the_lab_is_told_before_what_came_of_it_and_ends_the_run() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(), faults=[BoardError("no login")] * 2)
    bench.health = FakeHealth([("the lab's exporter died",)])
    with pytest.raises(BoardError, match=r"^the lab's exporter died: no login$") as caught:
        bench.measure(bench.plan.entries[0])
    assert (caught.value.ends_run, caught.value.transient) == (True, False)
    assert bench.failed_part(metered=True) is Part.LAB
    [fault] = bench.run.faults
    assert (fault.what, fault.transient) == ("the lab's exporter died: no login", False)
    assert isinstance(bench.board, FakeBoard)
    assert (bench.board.boots, bench.board.powered) == (1, False)


def test_a_card_that_does_not_boot_for_good_is_booted_once_for_all_its_entries() -> None:
    never = BoardError("XFS: unknown incompatible features", transient=False)
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S", "E")), faults=[never])
    assert isinstance(bench.board, FakeBoard)
    for slug in ("write-16k", "read-16k"):
        with pytest.raises(BoardError, match="XFS"):
            bench.measure(entry(bench, slug))
    assert (bench.board.boots, bench.failures_in_a_row) == (1, 1)
    assert len(bench.run.faults) == 2, "each entry says why it is missing"


def test_what_a_power_cycle_brings_back_gets_its_second_try() -> None:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter(traced("S", "E")), faults=[BoardError("no login")])
    assert isinstance(bench.board, FakeBoard)
    board = bench.board
    bench.health = FakeHealth([("QEMU was stopped",), ()])  # before and after the board is off
    bench.measure(entry(bench, "write-16k"))
    assert board.boots == 2
    assert [fault.what for fault in bench.run.faults] == ["QEMU was stopped: no login"]


def test_a_meter_that_starts_anew_in_the_middle_costs_a_second_try() -> None:
    class Restarted(FakeMeter):
        def disarm(self) -> Trace:
            told, self.trace = super().disarm(), whole
            return told

    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    whole = traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + 0.01)
    bench = replace(bench, meter=Restarted(replace(whole, marks=whole.marks[:1], faults=(ANOTHER_STREAM,))))
    result = bench.measure(wanted)
    assert result.valid, result.invalid_reasons
    assert result.energy is not None
    assert [fault.what for fault in bench.run.faults] == ["the meter started anew while it was recording"]


def test_joules_of_another_meter_are_not_stored() -> None:
    """A swapped meter needs a hand: no second try, and nothing of the measurement is kept but why."""
    store, meter = FakeStore(), FakeMeter()
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    first, second = entry(bench, "write-16k"), entry(bench, "read-16k")
    ours = traced(f"S{first.number}", f"E{first.number}", runtime_s=runtime_s() + 0.01)
    meter.trace = ours
    bench.measure(first)
    other = replace(ours.info, serial_number="u", shunt_uohm=50_000, calibration=MeterCalibration(gain_date=1))
    meter.trace = replace(traced(f"S{second.number}", f"E{second.number}"), info=other)
    words = (
        "this is not the meter of the run: serial was t, it is u now; shunt was 0.1 Ohm, it is 0.05 Ohm now; "
        "calibration's gain date was 0, it is 1 now"
    )
    with pytest.raises(InstrumentError, match=words) as caught:
        bench.measure(second)
    assert (caught.value.ends_run, caught.value.transient, caught.value.exit_code) == (True, False, 4)
    assert [each.number for each in store.measurements] == [first.number]
    assert bench.run.meter == ours.info
    (fault,) = bench.run.faults
    assert fault.what == words
    assert isinstance(bench.board, FakeBoard)
    assert not bench.board.powered
    assert bench.finish(expected=2).abort_reason == words


def test_a_meter_that_takes_the_place_of_the_runs_in_its_first_measurement_is_another_one() -> None:
    store, meter = FakeStore(), FakeMeter()
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    first = entry(bench, "write-16k")
    ours = traced(f"S{first.number}", f"E{first.number}", runtime_s=runtime_s() + 0.01)
    meter.trace = ours
    bench.begin()
    meter.trace = replace(ours, info=replace(ours.info, serial_number="u"))
    with pytest.raises(InstrumentError, match="serial was t, it is u now"):
        bench.measure(first)
    assert bench.run.meter == ours.info
    assert store.measurements == []


def test_a_meter_that_was_silent_at_first_is_noted_when_it_speaks() -> None:
    store, meter = FakeStore(), FakeMeter(None)
    bench = bench_of(shell=FakeShell(answer), meter=meter)
    bench = replace(bench, store=store)
    bench.measure(entry(bench, "write-16k"))
    assert bench.run.meter is None
    wanted = entry(bench, "read-16k")
    trace = traced(f"S{wanted.number}", f"E{wanted.number}")
    meter.trace = trace
    bench.measure(wanted)
    assert bench.run.meter == store.runs[-1].meter == trace.info


def in_guest_time(faults: list[BoardError]) -> tuple[BoardBench, FakeStore]:
    """A bench in guest time whose board has these faults at the next command, one after the other."""

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if faults:
            raise faults.pop(0)
        return answer(argv)

    store, bench = FakeStore(), bench_of(shell=FakeShell(answered), meter=FakeMeter(None))
    return replace(bench, store=store, profile=replace(bench.profile, guest_time=True)), store


def test_a_board_in_guest_time_begins_its_boot_again(said: list[str]) -> None:
    faults: list[BoardError] = []
    bench, store = in_guest_time(faults)
    heard: list[int] = []
    bench.on_measured = lambda each: heard.append(each.number)
    numbers = [each.number for each in bench.plan.entries]
    for each in bench.plan.entries:
        assert [one.number for one in store.measurements] == numbers[: each.number - 1], "each is stored at once"
        faults += [BoardError("QEMU was killed")] if each.number == 4 else []
        assert bench.measure(each).number == each.number
    assert [one.number for one in store.measurements] == numbers
    assert [one.number for one in bench.results] == numbers
    assert {one.boot for one in store.measurements} == {2}, "all figures are of one boot"
    assert heard == [1, 2, 3, 1, 2, 3, *numbers[3:]]
    assert any("trying again, from the begin of the boot (3 before it)" in line for line in said)


def test_a_boot_in_guest_time_that_fails_twice_keeps_what_it_had_and_owes_the_rest() -> None:
    faults: list[BoardError] = []
    bench, store = in_guest_time(faults)
    for each in bench.plan.entries[:3]:
        bench.measure(each)
    faults += [BoardError("QEMU was killed"), BoardError("killed again")]
    for each in bench.plan.entries[3:]:
        with pytest.raises(BoardError, match="killed again"):
            bench.measure(each)
    assert isinstance(bench.board, FakeBoard)
    assert (bench.board.boots, bench.failures_in_a_row, len(bench.run.faults)) == (2, 1, 2)
    assert [(each.number, each.boot) for each in store.measurements] == [(1, 1), (2, 1), (3, 1)]
    assert (
        bench.finish().abort_reason
        == f"{len(bench.plan.entries) - 3} of {len(bench.plan.entries)} measurements were not taken"
    )
