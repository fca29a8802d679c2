"""A boot from power-on is cut into segments, and what cannot be cut says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fake_bench import answer, bench_of, entry
from traces import trace_of

from fsjoule.bench.power_on import cut, reached, sum_complaints
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, ConfigError, MeasurementInvalid
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.meter import energy
from fsjoule.model import Ina219Trace, Mark, Measurement, TimedKind, Window
from fsjoule.model.metrics import TIMED_METRICS, metrics_of
from fsjoule.model.power_on import ConsoleLine, PowerOn
from fsjoule.model.trace import HostClock
from fsjoule.model.workload import SegmentRule, TimedWorkload
from fsjoule.suites import suite
from fsjoule.suites.suite_file import read_suite
from fsjoule.testing import FakeBoard, FakeMeter, FakeShell, FakeStore

# At 5 V a raw sample of 100 is 1 mV at 0.1 Ohm: 10 mA and 50 mW.
OFF, LOADER, KERNEL, INIT, IDLE = 0, 2000, 4000, 3000, 1000
LOAD = np.repeat([OFF, LOADER, KERNEL, INIT, IDLE], [500, 1000, 2000, 500, 1000])
ON_US = 1_500_000  # the trace begins with tick 1000, at 1 ms each
# The host's clock is 100 s ahead, and samples are 3 ms old when they arrive.
AHEAD_S, LINE_US = 100.0, 3000.0
RULES = (
    SegmentRule("power"),
    SegmentRule("spl", "^U-Boot SPL ", optional=True),
    SegmentRule("u-boot", r"^U-Boot 20\d\d"),
    SegmentRule("kernel", "^Starting kernel"),
    SegmentRule("init", "Run .* as init", "Sboot"),
    SegmentRule("ready", "login: $", "Eboot"),
)
IDLE_WINDOW = Window(5_100_000.0, 5_900_000.0)


def at(board_s: float) -> float:
    """When the host hears what the board says so long after power-on."""
    return AHEAD_S + ON_US * 1e-6 + board_s + LINE_US * 1e-6


def line(text: str, board_s: float, late_s: float = 0.0) -> ConsoleLine:
    return ConsoleLine(text, at(board_s), late_s)


SAID = (
    line("", 0.0),
    line("U-Boot 2025.01 (Jun 24 2026)", 0.1),
    line("Starting kernel ...", 1.0, late_s=0.010),
    line("fsjoule login: ", 3.52),
)
TOLD = PowerOn(at(-0.02), at(0.01), SAID)


def booted(
    *marks: tuple[str, int], stalled_us: float = 0.0, load: npt.ArrayLike = LOAD, start_tick: int = 1000
) -> Ina219Trace:
    """A trace with marks at so many microseconds after power-on; the host is late once, around 1 s after it."""
    heard_s = np.arange(1.02, 6.0, 0.02) + AHEAD_S
    lag_us = np.full(len(heard_s), AHEAD_S * 1e6 + LINE_US)
    lag_us[abs(heard_s - at(1.0)) < 0.02] += stalled_us
    sent = [Mark(ON_US + after_us, text) for text, after_us in marks]
    trace = trace_of(load, marks=sent, start_tick=start_tick)
    return replace(trace, host_clock=HostClock(heard_s, lag_us))


MARKS = (("Sboot", 3_000_000), ("Eboot", 3_500_000))


def test_segments_begin_at_lines_and_at_marks() -> None:
    segments = cut(RULES, TOLD, booted(*MARKS))
    begins = {edge.name: round((edge.at_us - ON_US) * 1e-6, 3) for edge in segments.edges}
    assert begins == {"power": 0.0, "u-boot": 0.1, "kernel": 1.0, "init": 3.0, "ready": 3.5}
    late_ms = {edge.name: round(edge.late_s * 1e3) for edge in segments.edges}
    # A tick; 2 ms of an emulated mark; 20 ms more of a line, and what the reader was late.
    assert late_ms == {"power": 1, "u-boot": 22, "kernel": 32, "init": 2, "ready": 2}
    assert segments.remark("spl").startswith("left out: no line of the console matches")
    assert segments.remark("power") == "power has spl in it, which the console does not show"
    assert not segments.remark("kernel")


def test_without_marks_the_lines_count() -> None:
    said = (*SAID[:3], line("[    1.2] Run /init as init process", 2.9), SAID[3])
    segments = cut(RULES, replace(TOLD, lines=said), booted())
    assert [round((edge.at_us - ON_US) * 1e-6, 3) for edge in segments.edges[-2:]] == [2.9, 3.52]


def test_what_a_shell_says_after_the_boot_is_no_part_of_it() -> None:
    later = replace(TOLD, lines=(*SAID, line("U-Boot SPL 2025.01, says a file", 3.9)))
    segments = cut(RULES, later, booted(*MARKS))
    assert not segments.has("spl")
    app = SegmentRule("app", "a file")
    assert "app: no line" in reasons(later, booted(*MARKS), (*RULES[:-1], app, RULES[-1]))


def test_a_stalled_host_is_part_of_the_uncertainty() -> None:
    late_s = {edge.name: edge.late_s for edge in cut(RULES, TOLD, booted(*MARKS, stalled_us=70e3)).edges}
    assert late_s["kernel"] == pytest.approx(0.102)  # 32 ms and 70 ms
    assert late_s["init"] == pytest.approx(0.002)


def test_the_joules_of_the_segments_are_those_of_the_whole() -> None:
    trace = booted(*MARKS)
    segments = cut(RULES, TOLD, trace)

    def joules(name: str) -> float:
        window, late_s = segments.window(name)
        return energy.energy(trace, window, IDLE_WINDOW, late_s=late_s).gross_mj.value

    # 1 W, 2 W, 1.5 W; the power of U-Boot's first 0.1 s is that of the segment `power`.
    parts = [joules(name) for name in ("power", "u-boot", "kernel", "init")]
    assert parts == pytest.approx([100.0, 900.0, 4000.0, 750.0], rel=5e-3)
    assert joules("") == pytest.approx(5750.0, rel=1e-3)
    assert not sum_complaints(trace, segments, IDLE_WINDOW)


def test_late_edges_make_a_segment_uncertain() -> None:
    trace = booted(*MARKS)
    window, late_s = cut(RULES, TOLD, trace).window("kernel")
    exact = energy.energy(trace, window, IDLE_WINDOW).gross_budget.marks_mj
    assert late_s == pytest.approx((0.032, 0.002))
    # From 1 W to 2 W within 32 ms: at most 2 W * 32 ms.
    late = energy.energy(trace, window, IDLE_WINDOW, late_s=late_s).gross_budget.marks_mj
    assert exact < 5.0
    assert late == pytest.approx(2000 * 0.032 / 3**0.5, rel=0.05)


def reasons(told: PowerOn, trace: Ina219Trace, rules: tuple[SegmentRule, ...] = RULES) -> str:
    with pytest.raises(MeasurementInvalid) as refused:
        cut(rules, told, trace)
    return "; ".join(refused.value.reasons)


def test_a_rule_that_finds_nothing_is_named() -> None:
    app = SegmentRule("app", r"^Started app", "app1")
    said = reasons(TOLD, booted(*MARKS), (*RULES[:-1], app, RULES[-1]))
    assert "app: no line of the console matches '^Started app' and the mark app1 was not heard" in said


def test_segments_in_another_order_are_refused() -> None:
    rules = (*RULES[:2], RULES[3], RULES[2], *RULES[4:])
    said = reasons(TOLD, booted(*MARKS), rules)
    assert "kernel begins 1.000 s after power-on, and u-boot begins 0.100 s" in said


def test_a_segment_too_short_to_be_seen_is_left_out() -> None:
    said = (SAID[0], line("U-Boot SPL 2025.01", 0.11), *SAID[1:])
    segments = cut(RULES, replace(TOLD, lines=said), booted(*MARKS))
    assert not segments.has("spl")
    assert segments.remark("spl") == "left out: it is shorter than the times of its two ends are sure"
    assert not segments.remark("power")


def test_a_meter_that_began_too_late_is_refused() -> None:
    assert "first sample came after the power" in reasons(TOLD, booted(*MARKS, load=LOAD[600:], start_tick=1600))
    # Its first samples came in time, but another board's.
    other = np.where(LOAD == OFF, LOADER, LOAD)
    assert "not in this board's supply" in reasons(TOLD, booted(*MARKS, load=other))


def test_an_instrument_without_the_hosts_clock_needs_marks() -> None:
    trace = replace(booted(*MARKS), host_clock=None)
    assert "begin at marks, and not at lines" in reasons(TOLD, trace)
    rules = (RULES[0], SegmentRule("init", mark="Sboot"), RULES[-1])
    assert cut(rules, TOLD, trace).window("init")[0].duration_s == pytest.approx(0.5)


def test_a_board_in_guest_time_has_its_own_clock() -> None:
    """The meter's is the board's, 0.4 s behind: both have heard the marks."""
    load = LOAD[500:]
    trace = trace_of(load, start_tick=0, marks=[Mark(2_600_000, "Sboot"), Mark(3_100_000, "Eboot")])
    lines = tuple(replace(each, at_s=each.at_s - at(-0.4)) for each in SAID)
    marks = (ConsoleLine("~Sboot~5184", 3.0), ConsoleLine("~Eboot~5545", 3.5))
    told = PowerOn(0.0, 0.0, lines, marks)
    assert "came after the power, by 400 ms" in reasons(told, trace)
    earlier = tuple(replace(each, at_s=each.at_s - 0.4) for each in marks)
    found = cut(RULES, PowerOn(0.0, 0.0, tuple(replace(each, at_s=each.at_s - 0.4) for each in lines), earlier), trace)
    assert [round(edge.at_us * 1e-6, 4) for edge in found.edges] == [0.0, 0.1, 1.0, 2.6, 3.1]
    apart = (earlier[0], replace(earlier[1], at_s=3.2))
    assert "differ between two marks" in reasons(PowerOn(0.0, 0.0, lines, apart), trace)


def test_a_board_that_did_not_come_up_says_how_far_it_came() -> None:
    assert reached(RULES, TOLD) == "it came to ready"
    assert reached(RULES, replace(TOLD, lines=SAID[:2])) == "it came to u-boot"
    assert reached(RULES, replace(TOLD, lines=())) == ""


def test_the_console_stamps_lines_at_their_first_byte() -> None:
    recorder = ConsoleRecorder(None)
    reads = [(b"U-Bo", 10.0, 0.5), (b"ot\r\nDRAM\r\n\r\nlog", 10.2, 0.0), (b"", 12.2, 2.0), (b"in: ", 12.5, 0.3)]
    for data, now_s, took_s in reads:
        recorder._take(data, now_s, took_s)
    # The second read found its bytes there: they came at any time since the first one.
    late_s = pytest.approx(0.2)
    lines = [(each.text, each.at_s, each.late_s) for each in recorder.lines()]
    assert lines == [("U-Boot", 10.0, 0.0), ("DRAM", 10.2, late_s), ("", 10.2, late_s), ("login: ", 10.2, late_s)]


def measured(meter: FakeMeter, faults: list[BoardError] | None = None) -> tuple[BoardBench, dict[str, Measurement]]:
    """All segments of a boot of a fake board, which said TOLD, by their names; the whole is ""."""
    bench = bench_of(shell=FakeShell(answer), meter=meter, faults=faults)
    assert isinstance(bench.board, FakeBoard)
    bench.board.told = TOLD
    boot = entry(bench, TimedKind.BOOT.value)
    found: dict[str, Measurement] = {}
    for number, name in enumerate(["", *(rule.name for rule in RULES[:-1])], 100):
        workload = TimedWorkload(TimedKind.POWER_ON, rules=RULES, segment=name)
        found[name] = bench.measure(replace(boot, number=number, workload=workload))
    return bench, found


def test_all_segments_are_of_one_boot() -> None:
    bench, found = measured(FakeMeter(booted(*MARKS)))
    assert {m.boot for m in found.values()} == {1}
    assert not [reason for m in found.values() for reason in m.invalid_reasons]
    seconds = {name: m.duration_s for name, m in found.items()}
    assert seconds.pop("spl") is None
    assert seconds.pop("") == pytest.approx(3.5, abs=1e-3)
    assert seconds == pytest.approx({"power": 0.1, "u-boot": 0.9, "kernel": 2.0, "init": 0.5}, abs=1e-3)
    kernel = found["kernel"]
    assert kernel.duration_uncertainty_s == pytest.approx(0.032 / 3**0.5, rel=0.01)
    assert kernel.energy is not None
    assert kernel.energy.gross_mj.value == pytest.approx(4000, rel=5e-3)
    assert kernel.samples is None
    assert isinstance(bench.store, FakeStore)
    timed = [number for number, files in bench.store.attachments.items() if "console-times.log" in files]
    assert timed == [found[""].number]


def test_without_a_meter_no_segment_is_valid() -> None:
    _, silent = measured(FakeMeter(None))
    assert {m.valid for m in silent.values()} == {False}
    assert "there is none" in silent["kernel"].invalid_reasons[0]


def test_a_board_that_does_not_come_up_is_an_error_with_the_last_segment() -> None:
    with pytest.raises(BoardError, match="it came to ready: did not boot"):
        measured(FakeMeter(booted(*MARKS)), [BoardError("did not boot", transient=False)])


def own(tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "own.toml"
    rows_text = ",\n".join(rows)
    file.write_text(f'[suite]\ntitle = "t"\n[[suite.workload]]\noperation = "power-on"\nsegments = [\n{rows_text}\n]\n')
    return file


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (('{name = "a", line = "x"}', '{name = "b", line = "y"}'), "begins at power-on"),
        (('{name = "a"}', '{name = "b"}'), "needs a line, a mark, or both"),
        (('{name = "a"}', '{name = "b", line = "("}'), "is no pattern"),
        (('{name = "a"}', '{name = "a", line = "x"}'), "two are called 'a'"),
        (('{name = "a"}', '{name = "b", line = "x", optional = true}'), "cannot be optional"),
        (('{name = "a"}',), "at least 2"),
    ],
)
def test_a_suite_with_wrong_segments_is_refused(tmp_path: Path, rows: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_suite(own(tmp_path, *rows))


def test_each_segment_is_a_series_of_its_own() -> None:
    workloads = suite("power-on").workloads
    assert [each.label for each in workloads] == [
        "power-on",
        *(f"power-on/{name}" for name in ("power", "spl", "u-boot", "kernel", "init")),
    ]
    assert all(each.is_boot and metrics_of(each)[: len(TIMED_METRICS)] for each in workloads)
    assert [each.slug for each in sorted(workloads, key=lambda each: each.order)] == [each.slug for each in workloads]


def test_a_further_row_makes_another_series_of_the_segment_before_it_only() -> None:
    def identities(rules: tuple[SegmentRule, ...]) -> dict[str, str]:
        whole = next(each for each in suite("power-on").workloads if isinstance(each, TimedWorkload))
        names = ["", *(rule.name for rule in rules[:-1])]
        return {name: replace(whole, rules=rules, segment=name).identity for name in names}

    before = identities(RULES)
    after = identities((*RULES[:-1], SegmentRule("app", "^Started app"), RULES[-1]))
    assert {name for name in before if before[name] != after[name]} == {"init"}
