"""States that a board is held in: their workloads, what wakes it, the time asleep, and the drift of the power."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fake_bench import IMAGE, PROFILE
from traces import INFO, trace_of

from fsjoule.bench.judge import WorkFacts, judge
from fsjoule.bench.onboard import held as onboard
from fsjoule.errors import ConfigError
from fsjoule.meter.energy.window import DRIFT_FAR, drift
from fsjoule.model import HeldFacts, HeldState, HeldWorkload, Ina219Trace, Mark, Measurement, Planned, Provision, Window
from fsjoule.model.metrics import HELD_METRICS, Metric, figure_of, metrics_of
from fsjoule.model.workload import OwnCommand
from fsjoule.suites import suite
from fsjoule.suites.suite_file import read_suite

ARM = """\
{uptime} 99.01
cpu  179 0 256 10213 17 0 0 0 0 0
processes {processes}
           CPU0       CPU1
 25:          {other}          0     GICv2  29 Level     arch_timer
 26:       {timer}          {timer}     GICv2  30 Level     arch_timer
 36:        {card}          0       GPC  23 Level     mmc1
IPI2:          0          1  Rescheduling interrupts
Err:          7
1/task/1/status:Name:\tinit
1/task/1/status:voluntary_ctxt_switches:\t{init}
16/task/16/status:Name:\tkworker/0:1-events_power_efficient
16/task/16/status:voluntary_ctxt_switches:\t{worker}
99/task/99/status:Name:\tsh
99/task/99/status:voluntary_ctxt_switches:\t{loop}
1/cmdline:init
99/cmdline:sh\0-c\0while :; do sleep 0.01; done\0
"""
X86 = """\
{uptime} 1.00
            CPU0       CPU1
  4:        {serial}          0   IO-APIC   4-edge      ttyS0
 24:          7          0  PCI-MSI 65536-edge      ACPI:Event, mmc0
LOC:        {timer}         50   Local timer interrupts
"""


def test_what_woke_a_board_is_counted_and_named() -> None:
    first = ARM.format(uptime="10.00", processes=300, other=0, timer=100, card=5, init=1, worker=3, loop=2)
    last = ARM.format(uptime="20.00", processes=1300, other=5, timer=600, card=25, init=1, worker=8, loop=1002)
    found = onboard.watched(first, last)
    assert found is not None
    assert found.interrupts_per_s == pytest.approx((2 * 500 + 5 + 20) / 10)
    assert found.woken_by_per_s == {"arch_timer": pytest.approx(100.5), "mmc1": pytest.approx(2.0)}
    assert found.woken_per_s == {
        "sh -c while :; do sleep 0.01; done": pytest.approx(100.0),
        "kworker events_power_efficient": pytest.approx(0.5),
    }
    assert found.programs_per_s == pytest.approx(100.0)


def test_interrupts_of_a_pc_have_their_names() -> None:
    readings = (X86.format(uptime=f"{at}.50", serial=at, timer=50 * at) for at in (1, 11))
    found = onboard.watched(*readings)
    assert found is not None
    assert found.woken_by_per_s == {"Local timer interrupts": pytest.approx(50.0), "ttyS0": pytest.approx(1.0)}


@pytest.mark.parametrize("text", ["", "1.00 2.00\nnothing of interrupts\n"])
def test_a_reading_without_interrupts_counts_nothing(text: str) -> None:
    assert onboard.watched(text, text) is None


def test_time_asleep_and_resume_are_the_kernels() -> None:
    log = (
        "[   23.690655] PM: suspend entry (deep)\n[   23.993302] Timekeeping suspended for 5.379 seconds\n"
        "[   24.235077] PM: suspend exit\n"
    )
    took_s, slept_s, resume_s = onboard.asleep("100.00 106.00\n", log, 0.7)
    assert (took_s, slept_s, resume_s) == (pytest.approx(6.0), pytest.approx(5.3), pytest.approx(0.241775))
    assert onboard.asleep("100.00 106.00\n", "", 0.7)[2] is None
    with pytest.raises(ValueError, match=r"unpack|float"):
        onboard.asleep("", log, 0.7)


def trace_w(watts: npt.NDArray[np.float64], marks: tuple[Mark, ...] = ()) -> Ina219Trace:
    """At 100 samples a second, 5 V."""
    shunt = np.rint(watts / 5.0 * 0.1 / 10e-6).astype(int)
    return trace_of(shunt, marks=marks, start_tick=0, info=replace(INFO, rate_hz=100))


def measured(workload: HeldWorkload, evidence: WorkFacts) -> Measurement:
    entry = Planned(1, 1, "6.1", "ext4", workload, "states", Provision.SCRATCH)
    return judge(
        entry, evidence, profile=PROFILE, boot=1, storage="card", card=IMAGE, started_utc="2026-11-29T00:00:00Z"
    )


OFF = HeldWorkload(HeldState.OFF, 60.0, OwnCommand("off", ()))
SUSPEND = HeldWorkload(HeldState.SUSPEND, 60.0, OwnCommand("suspend", ()))


def test_a_board_that_is_off_has_the_power_of_the_whole_trace() -> None:
    leaking = trace_w(np.full(6100, 0.05))
    found = measured(OFF, WorkFacts(leaking, ("", ""), 1.0, inside_s=0.5, held=HeldFacts()))
    assert found.valid
    assert found.window_s == pytest.approx(60.0, abs=0.1)
    assert figure_of(found, Metric.STATE_POWER) == pytest.approx(0.05, abs=1e-3)
    assert not [note for note in found.notes if "zero" in note or "steady" in note]


def test_a_power_that_is_none_is_told_as_such() -> None:
    found = measured(OFF, WorkFacts(trace_w(np.zeros(6100)), ("", ""), 1.0, inside_s=0.5, held=HeldFacts()))
    assert found.valid
    assert any(note.startswith("not told from zero") for note in found.notes)


def test_the_power_of_a_sleep_is_that_between_its_ends() -> None:
    watts = np.concatenate([np.full(300, 2.0), np.full(6000, 0.1), np.full(300, 2.0)])
    trace = trace_w(watts, (Mark(2_000_000, "S1"), Mark(65_000_000, "E1")))
    facts = WorkFacts(trace, ("S1", "E1"), 1.0, duration_s=63.0, inside_s=2.0, held=HeldFacts(resume_s=0.5))
    found = measured(SUSPEND, facts)
    assert found.valid
    assert figure_of(found, Metric.STATE_POWER) == pytest.approx(0.1, abs=1e-3)
    assert figure_of(found, Metric.RESUME) == 0.5
    short = WorkFacts(trace, ("S1", "E1"), 1.0, duration_s=63.0, inside_s=31.4, held=HeldFacts())
    assert "hold it longer" in measured(SUSPEND, short).invalid_reasons[0]


def test_a_state_that_the_board_lacks_is_valid_and_has_no_figure() -> None:
    found = measured(SUSPEND, WorkFacts(None, ("", ""), 1.0, notes=["no figure, for lack of the state: no clock"]))
    assert (found.valid, found.held) == (True, None)
    assert all(figure_of(found, metric) is None for metric in metrics_of(SUSPEND))


def test_a_drift_is_told_beyond_its_uncertainty() -> None:
    rng, n = np.random.default_rng(1), 12_000
    window, noise = Window(0.0, 120e6), rng.normal(0, 0.02, (200, n))
    steady = [drift(trace_w(1.0 + each), window) for each in noise]
    far = [abs(each.value) > DRIFT_FAR * each.uncertainty for each in steady if each]
    assert len(far) == 200
    assert sum(far) <= 7  # one in a hundred is expected
    rising = drift(trace_w(1.0 + noise[0] + np.linspace(0, 0.02, n)), window)
    assert rising is not None
    assert rising.value == pytest.approx(0.01, abs=3 * rising.uncertainty)
    assert rising.value > DRIFT_FAR * rising.uncertainty
    assert drift(trace_w(np.full(50, 1.0)), Window(0.0, 0.5e6)) is None


def test_our_suite_has_the_states_of_a_device() -> None:
    states = suite("states").workloads
    assert [each.slug for each in states] == [
        f"state-{name}" for name in ["off", "idle", "mounted", "cpu", "all-cpus", "suspend"]
    ]
    assert len({each.identity for each in states}) == 6
    assert all(set(HELD_METRICS) <= set(metrics_of(each)) for each in states)
    assert not {Metric.POWER, Metric.DURATION} & set(metrics_of(states[0]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('state = "asleep"', "'idle', 'off' or 'suspend'"),
        ('state = "off", command = ["true"]', "nothing runs while it is off"),
        ('state = "suspend", mounted = true', "nothing runs while it is suspend"),
        ('state = "off", prepare = [["true"]]', "the state is off"),
        ("each_cpu = true", "each_cpu needs one"),
        ("seconds = 2", "greater than or equal to 3"),
        ('command = ["./load"]', "files = ['load'] puts it on the board"),
        ("block_kib = 4", "block_kib"),
    ],
)
def test_a_state_that_cannot_be_held_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[suite]\ntitle = "mine"\nworkload = [{{ operation = "state", {text} }}]\n')
    with pytest.raises(ConfigError) as refused:
        read_suite(file)
    assert words in str(refused.value)
