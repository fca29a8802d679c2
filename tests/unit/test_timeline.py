"""Whose a window's energy was, from the kernel's events as a board printed them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, command_line
from fake_bench import answer, bench_of, entry
from profiles import profile_of, symbols_of
from results_factory import make_run
from traces import INFO, trace_of
from whole_runs import write_whole

from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import ConfigError, LabError, MeasurementInvalid, ResultError
from fsjoule.meter.energy import energy, instrument_of
from fsjoule.meter.energy.timeline import Timeline, by_function, timeline
from fsjoule.model import Measurement, Window
from fsjoule.model.kernel_events import IDLE, TRACED, RequestKind
from fsjoule.ports import CommandResult
from fsjoule.store.events import EVENTS_FILE, decode_events, encode_events, parse_events
from fsjoule.store.profiles import PROFILE_FILE, encode_profile, encode_symbols, symbols_file
from fsjoule.testing import FakeMeter, FakeShell, FakeStore

# As Linux 6.1 wrote them on a board, times and sizes apart; 6.12 has a priority in requests.
LINES = """\
entries: 14
overrun: 0
dropped events: 0
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           <...>-355     [000] d....     7.900000: sched_switch: prev_comm=sh prev_pid=355 prev_prio=120 prev_state=Z ==> next_comm=start next_pid=400 next_prio=120
           start-400     [000] .....     8.000000: tracing_mark_write: fsjoule S1
           start-400     [000] d....     8.100000: sched_switch: prev_comm=start prev_pid=400 prev_prio=120 prev_state=S ==> next_comm=my prog-2 next_pid=401 next_prio=120
       my prog-2-401     [000] .....     8.150000: sys_fsync(fd: 3)
    kworker/0:1H-34      [000] .....     8.200000: block_rq_issue: 179,256 WS 8192 () 1024 + 16 [kworker/0:1H]
    kworker/0:1H-34      [000] .....     8.200000: block_rq_issue: 179,256 FF 0 () 0 + 0 none,0,0 [kworker/0:1H]
       my prog-2-401     [000] d....     8.400000: sched_switch: prev_comm=my prog-2 prev_pid=401 prev_prio=120 prev_state=D ==> next_comm=kworker/0:1H next_pid=34 next_prio=100
    kworker/0:1H-34      [000] .....     8.450000: workqueue_execute_start: work struct b09a6ba7: function blk_mq_run_work_fn
    kworker/0:1H-34      [000] .....     8.550000: workqueue_execute_end: work struct b09a6ba7: function blk_mq_run_work_fn
    kworker/0:1H-34      [000] .....     8.600000: block_rq_complete: 179,256 WS () 1024 + 16 [0]
    kworker/0:1H-34      [000] d....     8.600000: sched_switch: prev_comm=kworker/0:1H prev_pid=34 prev_prio=100 prev_state=I ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] dnh..     8.700000: block_rq_complete: 179,256 FF () 18446744073709551615 + 0 none,0,0 [0]
          <idle>-0       [000] dnh..     8.700000: block_rq_complete: 179,256 WFSM () 1024 + 0 [0]
          <idle>-0       [000] .....     8.700000: cpu_frequency: state=792000 cpu_id=0
       my prog-2-401     [000] .....     8.900000: sys_fsync -> 0x0
           stop-402      [000] .....     9.000000: tracing_mark_write: fsjoule E1
a line of something else
"""  # noqa: E501 - as it was printed
SECOND = """\
          <idle>-0       [001] d....     8.000000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my prog-2 next_pid=405 next_prio=120
       my prog-2-405     [001] d....     8.100000: sched_switch: prev_comm=my prog-2 prev_pid=405 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
"""  # noqa: E501
# This meter's readings show what was that much earlier.
SHIFT_US = 1e6 * instrument_of(INFO).shift_s
WINDOW = Window(2_000_000.0 - SHIFT_US, 3_000_000.0 - SHIFT_US)
MARKS = ("S1", "E1")


def timeline_of(text: str = LINES, *, watts: tuple[float, ...] = (1.0,) * 10) -> Timeline:
    """One second, each tenth of it with a power, after an idle one; 5 V, 0.1 ohm, so a raw step is 0.5 mW."""
    load = np.repeat(np.round(np.array((0.5,) * 10 + watts + (0.5,)) / 5e-4), 100)
    return timeline(trace_of(load), WINDOW, MARKS, parse_events(text.splitlines()))


def test_events_are_read_as_a_kernel_prints_them() -> None:
    events = parse_events(LINES.splitlines())
    assert [(each.time_s, each.thread) for each in events.switches] == [
        (0.0, "sh"),
        (7.9, "start"),
        (8.1, "my prog"),
        (8.4, "kworker"),
        (8.45, "kworker blk_mq_run_work_fn"),
        (8.55, "kworker"),
        (8.6, IDLE),
    ]
    kinds = [(each.kind, each.size_bytes, round(each.end_s - each.begin_s, 6)) for each in events.requests]
    assert kinds == [(RequestKind.WRITE, 8192, 0.4), (RequestKind.FLUSH, 0, 0.5)]
    assert [(each.name, each.thread, each.begin_s, each.end_s) for each in events.calls] == [
        ("fsync", "my prog", 8.15, 8.9)
    ]
    assert (events.frequencies[0].hz, events.marks) == (792e6, {"S1": 8.0, "E1": 9.0})
    assert (events.dropped, events.unfinished) == (0, 0)
    again = decode_events(encode_events(LINES.encode()), Path("events"))
    assert again == events


def test_threads_have_the_energy_of_the_time_in_which_they_ran() -> None:
    found = timeline_of(watts=(2.0, 1.0, 1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0))
    shares = found.power.shares()
    assert {name: round(each.energy_mj, 3) for name, each in shares.items()} == {
        IDLE: 400,
        "my prog": 300,
        "kworker blk_mq_run_work_fn": 300,
        "kworker": 300,
        "start": 200,
    }
    assert sum(each.energy_mj for each in shares.values()) == pytest.approx(found.power.energy_mj)
    assert sum(each.seconds for each in shares.values()) == pytest.approx(1.0)
    # Each switch is at a reading's edge: nothing is shared.
    assert all(each.least_mj == pytest.approx(each.most_mj) for each in shares.values())
    halves = found.power.binned_w(np.array([2e6, 2.5e6, 3e6]) - SHIFT_US, ["my prog", "start"])
    assert halves == pytest.approx(np.array([[0.6, 0.0], [0.4, 0.0]]))


def test_parts_are_the_whole_of_what_the_window_used() -> None:
    rng = np.random.default_rng(5)
    trace = trace_of(rng.integers(800, 3000, 2100), lost=(60, 61))
    window = Window(2_000_300.0, 2_999_800.0)
    found = timeline(trace, window, MARKS, parse_events(LINES.splitlines()))
    whole = energy(trace, window, Window(1_000_000.0, 1_900_000.0)).gross_mj
    parts = sum(each.energy_mj for each in found.power.shares().values())
    # Only the whole is corrected for readings that blur what is before and after the window.
    assert parts == pytest.approx(whole.value, rel=2e-4)


def test_threads_that_share_a_reading_have_it_within_bounds() -> None:
    # The board takes 1 or 3 W; in the reading of 2 W one thread may have had 3 W, and the other 1 W.
    load = np.array([1.0, 2.0, 3.0, 3.0]) / 5e-4
    trace = trace_of(np.concatenate([np.full(1000, 2000), load, np.full(20, 2000)]))
    lines = LINES.replace("8.100000", "8.375000").replace("8.400000", "8.990000")
    found = timeline(
        trace, Window(2_000_000.0 - SHIFT_US, 2_004_000.0 - SHIFT_US), MARKS, parse_events(lines.splitlines())
    )
    first = found.power.shares()["start"]
    assert (first.energy_mj, first.least_mj, first.most_mj) == pytest.approx((2.0, 1.5, 2.5))


def test_processors_that_work_together_have_equal_parts() -> None:
    shares = timeline_of(LINES + SECOND).power.shares()
    # `start` on one and `my prog` on the other, for a tenth of a second.
    assert shares["start"].energy_mj == pytest.approx(50)
    assert shares["my prog"].energy_mj == pytest.approx(350)
    assert (shares["start"].seconds, shares["my prog"].seconds) == pytest.approx((0.1, 0.4))
    assert sum(each.energy_mj for each in shares.values()) == pytest.approx(1000)


def test_the_energy_of_functions_is_that_of_threads() -> None:
    assert by_function(600.0, {"read": 1, "write": 3}) == {"write": 450.0, "read": 150.0}
    assert by_function(600.0, {}) == {}


def test_another_speed_of_the_boards_clock_is_told() -> None:
    found = timeline_of(LINES.replace("9.000000: tracing", "9.000100: tracing"))
    assert found.clock.fast_ppm == pytest.approx(100)
    assert found.clock.us(8.0) == WINDOW.start_us


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("fsjoule E1", "fsjoule E2"), "mark E1 is not among them"),
        (("fsjoule E1", "other\n dropped events: 7"), "7 events found no room"),
        (("sched_switch", "sched_wakeup"), "none says who ran"),
        (("9.000000: tracing", "7.000000: tracing"), "before its start"),
    ],
)
def test_events_that_do_not_fit_are_refused(change: tuple[str, str], reason: str) -> None:
    with pytest.raises(MeasurementInvalid, match=reason):
        timeline_of(LINES.replace(*change))


def test_a_damaged_file_of_events_is_refused() -> None:
    with pytest.raises(ResultError, match=r"events\.txt\.gz is damaged"):
        decode_events(encode_events(LINES.encode())[:-9], Path(EVENTS_FILE))


def traced_bench(begin: int = 0) -> tuple[FakeShell, FakeStore]:
    """Measure on a board whose kernel says this to tracing."""

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if "buffer_size_kb" in argv[-1]:
            return CommandResult(argv, begin, "Cannot allocate memory")
        if "per_cpu" in argv[-1]:
            shell.files[f"{onboard.DIRECTORY}/events"] = LINES.encode()
            return CommandResult(argv, 0, "")
        return answer(argv)

    shell = FakeShell(answered)
    bench = replace(bench_of(shell=shell, meter=FakeMeter()), traced=True)
    bench.begin()
    measurement = bench.measure(entry(bench, "write-16k"))
    assert TRACED in measurement.invalid_reasons
    assert isinstance(bench.store, FakeStore)
    return shell, bench.store


def test_a_traced_measurement_keeps_events_and_does_not_count() -> None:
    shell, store = traced_bench()
    (attached,) = store.attachments.values()
    assert decode_events(attached[EVENTS_FILE], Path("x")).marks == {"S1": 8.0, "E1": 9.0}
    assert b'echo "fsjoule S$1" > /sys/kernel/tracing' in shell.files[f"{onboard.DIRECTORY}/install"]


@pytest.mark.parametrize(("code", "kind", "reason"), [(3, ConfigError, "CONFIG_FTRACE"), (4, LabError, "allocate")])
def test_a_board_that_cannot_trace_is_refused(code: int, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        traced_bench(code)


@pytest.fixture
def fsjoule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return command_line(monkeypatch, capfd)


def traced_run(results: Path) -> Path:
    """A run whose first measurement has events between its marks, and a profile."""
    made = make_run(repeat=1)
    first = made.measurements[0]
    window = first.window
    assert window is not None
    lines = LINES.replace("9.000000: tracing", f"{8 + window.duration_s:f}: tracing")

    def attachments(measurement: Measurement) -> dict[str, bytes]:
        if measurement.number != first.number:
            return {}
        profile = profile_of({0xC0000004: 7, 0xBF000000: 14})
        return {EVENTS_FILE: encode_events(lines.encode()), PROFILE_FILE: encode_profile(profile)}

    measured = (
        replace(each, invalid_reasons=(TRACED,)) if each.number == first.number else each for each in made.measurements
    )
    path = write_whole(results, made.run, measured, trace=made.traces.get, attachments=attachments)
    symbols = symbols_of({0xBF000000: "ext4:ext4_write", 0xC0000000: "vfs_write"})
    (path / symbols_file(1)).write_bytes(encode_symbols(symbols))
    return path


def test_a_run_says_whose_its_energy_was(fsjoule: CommandLine, tmp_path: Path) -> None:
    run = traced_run(tmp_path)
    told = fsjoule("timeline", str(run), "--page", "page.html", "--perfetto", "trace.json")
    assert told.code == 0
    assert "with tracing: idle" in told.out
    assert "1 write (0.0 MiB), 1 flush; one was under way" in told.out
    assert "ext4_write" in told.out
    page = Path("page.html").read_text()
    assert "kworker blk_mq_run_work_fn" in page
    assert page.count("<svg") == 2
    document = json.loads(fsjoule("timeline", str(run), "--json").out)["timelines"][0]
    threads, functions = document["threads"], document["functions"]
    assert sum(each["energy_mj"] for each in threads.values()) == pytest.approx(document["energy_mj"])
    assert document["energy_mj"] == pytest.approx(document["window"]["value"])
    running_mj = document["energy_mj"] - threads["idle"]["energy_mj"]
    assert sum(each["energy_mj"] for each in functions) == pytest.approx(running_mj)
    assert [each["name"] for each in functions] == ["ext4_write", "vfs_write"]
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    slices = sorted((each["ts"], each["ts"] + each["dur"]) for each in events if each["ph"] == "X")
    assert slices
    assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(slices))
    assert {each["ph"] for each in events} == {"M", "C", "i", "X", "b", "e"}


def test_a_run_without_events_is_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    made = make_run(repeat=1)
    run = write_whole(tmp_path, made.run, made.measurements)
    told = fsjoule("timeline", str(run))
    assert told.code == 2
    assert "has no events of the kernel" in told.err
    told = fsjoule("timeline", str(run), "-k", "nothing-like-this")
    assert "no measurement of the run is chosen" in told.err
