"""The states that a recorded run allows: which there are, what they hold, and their names."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fake_bench import PROFILE, answer
from traces import trace_of

from fsjoule.bench.crash import onboard
from fsjoule.bench.crash.check import Checked, CrashWork, energies_mj
from fsjoule.bench.crash.shared import Claim, OtherLogError, Share, SharedStates
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.phases import Phases
from fsjoule.errors import BoardError, ConfigError, FsjouleError, MeasurementInvalid
from fsjoule.host.clock import HostClock
from fsjoule.model import CrashFate, CrashWorkload, Mark, Planned, Provision, Storage, Value
from fsjoule.model.crash import StateEnergies, StateTimes, check_state_name
from fsjoule.model.workload import OwnCommand
from fsjoule.model.write_log import DISCARD, END, FLUSH, FUA, MARK, LogEntry, WriteLog, least
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeMeter, FakeShell, FakeStore

_MADE = LogEntry(0, 0, 0, MARK, "made")
_FLUSHED = LogEntry(0, 0, 0, FLUSH)
_END = LogEntry(0, 0, 0, MARK, END)
_PROMISED = LogEntry(0, 0, 0, MARK, "promise")


def _write(place: int, sector: int, content: str, sectors: int = 8, flags: int = 0) -> LogEntry:
    return LogEntry(place, sector, sectors, flags, content)


def _log(*entries: LogEntry) -> WriteLog:
    return WriteLog([_MADE, *entries], {"promise"})


def _work() -> CrashWork:
    workload = CrashWorkload(OwnCommand("files", ("./files.sh",)))
    return CrashWork(Planned(1, 1, "6.1", "ext4", workload, "crash-states", Provision.SCRATCH), workload, {}, 7)


def _measurer(shell: FakeShell) -> Measurer:
    return Measurer(shell, FakeMeter(None), HostClock(), PROFILE, seed=1, phases=Phases(HostClock()))


def _content(log: WriteLog, name: str) -> dict[int, tuple[str, int]]:
    """The whole device in a state, by sector: which write's data, and which of its sectors."""
    state = log.state(name)
    pieces = [*log.pieces(range(log.epochs[state.epoch].begins)), *state.pieces]
    return {piece.sector + i: (piece.content, piece.offset + i) for piece in pieces for i in range(piece.sectors)}


def test_what_was_flushed_is_in_every_later_state() -> None:
    log = _log(_write(1, 0, "a"), _FLUSHED, _write(10, 8, "b"), _write(20, 16, "c"))
    later = [each for each in log.coverage(1).different if each.epoch == 1]
    assert later
    assert all(_content(log, each.name)[0] == ("a", 0) for each in later)


def test_each_pair_of_unflushed_writes_is_separated_both_ways() -> None:
    log = _log(*(_write(10 * i, 8 * i, f"{i}") for i in range(6)), _FLUSHED)
    kept = [each.subset.writes for each in log.coverage(1).different if not each.is_torn]
    for one, other in itertools.permutations(range(6), 2):
        assert any(one in writes and other not in writes for writes in kept)


def test_a_promise_counts_from_its_mark_on() -> None:
    log = _log(_write(1, 0, "a"), _FLUSHED, _PROMISED, _write(10, 8, "b"))
    by_name = {each.name: each.promises for each in log.coverage(1).different}
    # "1.0:-" has the content of "1:-", which asks for more.
    assert "1.0:-" not in by_name
    assert by_name["1:-"] == 1
    assert by_name["0:-"] == 0


def test_a_lasting_write_is_on_the_medium_before_the_others() -> None:
    log = _log(_write(1, 0, "last", flags=FUA), _write(10, 8, "b"), _FLUSHED)
    assert _content(log, "0.0:-") == {}
    assert all(
        ("last", 0) in _content(log, each.name).values() for each in log.coverage(1).different if each.name[1] == ":"
    )


def test_a_later_write_is_above_an_earlier_one_of_the_same_place() -> None:
    log = _log(_write(1, 0, "old"), _write(20, 4, "new", 2), _FLUSHED)
    assert [str(piece) for piece in log.state("0:0-1").pieces] == ["0:4:1", "4:2:20", "6:2:7"]


def test_a_torn_write_is_there_in_one_half() -> None:
    log = _log(_write(1, 0, "a"), _FLUSHED)
    assert [str(piece) for piece in log.state("0:-+0/4").pieces] == ["0:4:1"]
    assert [str(piece) for piece in log.state("0:-+0/-4").pieces] == ["4:4:5"]
    assert {"0:-+0/4", "0:-+0/-4"} <= {each.name for each in log.coverage(1).different}


def test_equal_contents_are_checked_once() -> None:
    log = _log(_write(1, 0, "same"), _FLUSHED, _write(10, 0, "same"), _FLUSHED)
    coverage = log.coverage(1)
    assert coverage.states > len(coverage.different)
    assert {each.name for each in coverage.different if not each.is_torn} == {"0:-", "0:0"}


def test_a_discard_leaves_zeros_or_what_was_there() -> None:
    log = _log(_write(1, 0, "a"), _FLUSHED, LogEntry(0, 0, 8, DISCARD), _FLUSHED)
    assert [str(piece) for piece in log.state("1:0").pieces] == ["0:8:"]
    assert log.state("1:-").pieces == ()


@pytest.mark.parametrize("name", ["0:0-1,3", "0:-", "0:0+1/4", "0:1-3+0/-4", "0.0:-"])
def test_a_state_has_one_name(name: str) -> None:
    log = _log(_PROMISED, *(_write(10 * i, 8 * i, f"{i}") for i in range(4)), _FLUSHED)
    assert log.state(name).name == name


@pytest.mark.parametrize("name", ["7:0", "0:4", "0:0-9", "0.9:-", "0", "0:a", "0:0+9/4", "0:3-"])
def test_a_name_of_no_state_is_refused(name: str) -> None:
    log = _log(*(_write(10 * i, 8 * i, f"{i}") for i in range(4)), _FLUSHED)
    with pytest.raises(ConfigError, match="no state of this log"):
        log.state(name)


def test_a_log_is_the_same_whatever_numbers_its_processes_had() -> None:
    logs = [WriteLog([_MADE, _write(1, 0, "a"), LogEntry(9, 0, 0, MARK, pid)], {pid}) for pid in ("427", "402")]
    assert len({each.digest for each in logs}) == 1
    assert logs[0].digest != _log(_write(1, 0, "a")).digest


def test_a_name_with_its_log_is_no_other_logs_state() -> None:
    log, other = _log(_write(1, 0, "a"), _FLUSHED), _log(_write(1, 0, "b"), _FLUSHED)
    name = log.full_name(log.state("0:-+0/4"))
    assert log.state(name).name == "0:-+0/4"
    assert log.state(f"{log.digest}/0:0").name == "0:0"
    with pytest.raises(ConfigError, match=f"named in log {log.name}, and this is log {other.name}"):
        other.state(name)
    check_state_name(name)
    with pytest.raises(ConfigError, match="no name of a crash state"):
        check_state_name("xyz/0:0")


def test_a_log_without_the_filesystems_making_is_refused() -> None:
    with pytest.raises(MeasurementInvalid, match="cut short"):
        WriteLog([_write(1, 0, "a")], ())


@pytest.mark.parametrize("name", ["jffs2", "raw"])
def test_what_has_no_recorded_writes_is_refused_before_a_board_is_touched(name: str) -> None:
    nand = Storage("mtd0", 128 << 20)
    planning = Planning((name,), ("6.1",), 1, 7, further={"nand": nand}, storages=None)
    with pytest.raises(ConfigError, match=f"{name} has no crash states"):
        plan_entries(suite("crash-states"), planning)


def test_a_state_has_crashed_the_board_if_it_does_so_alone_a_second_time() -> None:
    workload = CrashWorkload(OwnCommand("files", ("./files.sh",)))
    work = CrashWork(Planned(1, 1, "6.1", "ext4", workload, "crash-states", Provision.SCRATCH), workload, {}, 7)
    log = _log(_write(1, 0, "a"), _FLUSHED)
    silent = BoardError("the board does not answer")
    assert not work.goes_on(silent), "it ended before any state was checked"
    for batch, crashed in (([log.state("0:-"), log.state("0:0")], []), ([log.state("0:0")], ["0:0"])):
        work.running = list(batch)
        assert work.goes_on(silent)
        assert list(work.results) == crashed


@pytest.mark.parametrize(
    ("promises", "entries", "why"),
    [
        ("", (), "made no promise"),
        ("7 gone - 0 old\n", (), "the filesystem's making is not in it"),
        ("7 gone - 0 old\n", (_MADE, LogEntry(0, 0, 0, MARK, "7")), "memory had no room for all writes"),
        (
            "7 gone - 0 old\n8 gone - 0 older\n",
            (_MADE, LogEntry(0, 0, 0, MARK, "7"), _END),
            "the log has 1 of 2 promises",
        ),
    ],
)
def test_a_record_that_lacks_something_is_invalid(promises: str, entries: tuple[LogEntry, ...], why: str) -> None:
    shell = FakeShell(answer)
    shell.files |= {onboard.PROMISES: promises.encode(), onboard.ENTRIES: "".join(f"{e}\n" for e in entries).encode()}
    with pytest.raises(MeasurementInvalid, match=why):
        _work()._read(_measurer(shell))


@pytest.mark.parametrize(
    ("disk", "answers", "error", "why"),
    [
        ("sda", {}, MeasurementInvalid, "stick cannot be under test: it has the log"),
        ("mmcblk1", {"sda": (1, "there is no /dev/sda")}, BoardError, "the board has no stick: there is no /dev/sda"),
        ("mmcblk1", {"size": (0, "8192\n")}, BoardError, "sda with 4 MiB, and the environment file says 512 MiB"),
        ("mmcblk1", {"size": (0, "1048576\n")}, None, ""),
    ],
)
def test_a_device_takes_the_log_only_if_it_is_the_one_that_was_meant(
    disk: str, answers: dict[str, tuple[int, str]], error: type[FsjouleError] | None, why: str
) -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        code, output = answers.get(argv[-1].rpartition("/")[2], (0, ""))
        return CommandResult(argv, code, output)

    measurer = _measurer(FakeShell(answered))
    measurer.profile = replace(PROFILE, storages={"stick": Storage("sda", 512 << 20)}, log_storage="stick")
    measurer.scratch.disk = disk
    if error is None:
        assert _work()._log_place(measurer) == "/dev/fsjoule/sda"
        return
    with pytest.raises(error, match=why):
        _work()._log_place(measurer)


def test_what_was_checked_before_the_run_ended_is_not_checked_again() -> None:
    log, other = _log(_write(1, 0, "a"), _FLUSHED), _log(_write(1, 0, "b"), _FLUSHED)
    workload = CrashWorkload(OwnCommand("files", ("./files.sh",)))
    entry = Planned(1, 1, "6.1", "ext4", workload, "crash-states", Provision.SCRATCH)
    known = {"0:-": Checked(CrashFate.LOST, 0.1, 0.02, "1=differs 2=missing"), "0:0": Checked(CrashFate.OK, 0.25)}
    fates = [f"{name} {each}" for name, each in known.items()]
    kept = "\n".join([f"{log.digest} 2", *fates]).encode()
    older = f"{log.digest}\n0:- lost 0.1 0.02 1=differs".encode()
    for recorded, before, expected in ((log, kept, known), (other, kept, {}), (log, older, {})):
        store = FakeStore()
        store.keep("states-1.txt", before)
        shared = SharedStates(store, entry)
        answer = shared.claim(Claim(1, recorded.digest, 1, {}))
        assert {name: Checked.of(text) for name, text in answer.known.items()} == expected
        assert store.take("states-1.txt") == (kept + b"\n" if expected else None), "it is kept until all is measured"


def test_boards_that_recorded_one_log_share_its_states() -> None:
    entry, store = _work().entry, FakeStore()
    shared = SharedStates(store, entry)
    assert [shared.claim(Claim(1, "3f9a", 3, {})).batch for _ in range(2)] == [0, 1]
    assert shared.claim(Claim(1, "3f9a", 3, {"0:-": "ok 0.1 0 "})) == Share(2, {"0:-": "ok 0.1 0 "})
    with pytest.raises(OtherLogError, match="one board recorded log 4b2c, another one 3f9a"):
        shared.claim(Claim(1, "4b2c", 3, {"0:-": "lost 0.1 0 1=missing"}))
    assert shared.claim(Claim(1, "3f9a", 3, {})) == Share(None, {"0:-": "ok 0.1 0 "})
    assert store.take("states-1.txt") == b"3f9a 2\n0:- ok 0.1 0 \n"
    shared.end()
    shared.claim(Claim(1, "3f9a", 3, {"0:0": "ok 0.1 0 "}))
    assert store.take("states-1.txt") is None


def test_a_state_has_the_energy_of_its_mount_and_of_its_check() -> None:
    """The board's clock is 5.501 s ahead of the meter's; a mark is sent within 2 ms."""
    trace = trace_of(np.full(3000, 2500), marks=[Mark(1_500_000, "S1"), Mark(2_500_000, "E1")])
    clocks = ("clock 7000000000 7002000000\n", "clock 8000000000 8002000000\n")
    checked = "0:0 ok 7101000000 7201000000 7401000000 7801000000\n0:- refused 7801000000 7811000000 0 0 why\n"
    found = energies_mj(trace, ("S1", "E1"), clocks[0] + checked + clocks[1])
    watts = float(trace.power_w.mean())
    mount, check = found["0:0"]
    assert (mount.value, check.value) == pytest.approx((100 * watts, 400 * watts))
    assert watts / 3 < mount.uncertainty < 0.1 * mount.value, "the mark's millisecond is in it"
    assert found["0:-"][1] == Value(0.0, 0.0)
    with pytest.raises(MeasurementInvalid, match="has not heard both marks"):
        energies_mj(trace, ("S1", "E2"), clocks[0] + checked + clocks[1])


def test_times_and_energies_of_all_states_name_the_worst_one() -> None:
    times = StateTimes.of({**{f"0:{i}": i / 100 for i in range(1, 101)}, "0:-": 0.0})
    assert times == StateTimes(0.505, 0.95, 1.0, "0:100")
    known = Checked(CrashFate.LOST, 0.02, 0.1, "1=differs", Value(9.1, 0.2), None)
    assert Checked.of(str(known)) == known
    energies = StateEnergies.of({"0:0": (9.0, 0.2), "0:1": (12.0, 0.3), "1:-": (9.5, 0.1)})
    assert energies is not None
    assert energies.text == "9.5 mJ ± 0.2 mJ, 95 % up to 12 mJ, at most 12 mJ (0:1); 30.5 mJ ± 0.6 mJ in all"
    assert StateTimes.of({}) is None


def test_a_series_of_a_thousand_states_has_a_short_name() -> None:
    command = OwnCommand("files", ("./files.sh",))
    few, many = (CrashWorkload(command, only=tuple(f"{n}:0-3" for n in range(count))) for count in (2, 1000))
    assert len({CrashWorkload(command).identity, few.identity, many.identity}) == 3
    assert len(many.identity) < 60


def test_a_log_that_ran_out_of_room_is_not_whole() -> None:
    assert _log(_write(1, 0, "a"), _END).is_whole
    assert not _log(_END, _write(1, 0, "a")).is_whole


@pytest.mark.parametrize("line", ["", "1 2 3", "a b c d", "1 2 3 x text"])
def test_a_damaged_entry_is_refused(line: str) -> None:
    with pytest.raises(MeasurementInvalid, match="damaged entry"):
        LogEntry.read(line)


@pytest.mark.parametrize("needed", [{3}, {3, 11}, {0, 7, 19}, set(range(20))])
def test_the_least_lack_that_fails_is_found(needed: set[int]) -> None:
    assert least(frozenset(range(20)), lambda lacks: needed <= lacks) == needed
