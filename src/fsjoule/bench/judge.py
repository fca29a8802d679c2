"""Makes a measurement's figures from its evidence, and says why they should not be believed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from fsjoule.bench import board_state, kernel_log
from fsjoule.bench.onboard.marks import BoardUsage
from fsjoule.bench.onboard.state import StateReading
from fsjoule.errors import MeasurementInvalid
from fsjoule.filesystems import filesystem
from fsjoule.meter import energy
from fsjoule.meter.energy import plausible, validity
from fsjoule.meter.energy.window import DRIFT_FAR, drift
from fsjoule.model import (
    CARD,
    KERNEL_WARNED,
    MIB,
    AgeFacts,
    BlockWorkload,
    BoardProfile,
    CardModel,
    CrashFacts,
    DamageOutcome,
    DeviceCounters,
    Energy,
    FioResult,
    HeldFacts,
    ImageFacts,
    Measurement,
    Planned,
    Projection,
    SeriesKey,
    Space,
    StatePolicy,
    Trace,
    Value,
    Window,
)
from fsjoule.model.filesystem import titled
from fsjoule.model.layer import device_of

# The idle second begins with the shell's answer and ends with the next command; neither is idle.
_IDLE_MARGIN_US = 150_000.0
_LEAST_STILL_S: Final = 1.0
_FAR: Final = 2.0
_UNCOUNTED = "the storage's operations were not counted: the kernel counts none there"


@dataclass
class WorkFacts:
    """The facts after the work, before it is judged.

    `marks` are the texts of the start and the stop mark. A segment of a boot has a `window` instead, whose ends may be
    `late_s` too late, and no trace is stored with it (`part`). The first `idle_s` seconds of the trace show idle power,
    or the last ones with `idle_after` (after a boot). `duration_s` is the time by the board's clock, None without one;
    `unmount_s` is the time of the unmount that follows in the same window. With `board_lost` the board does not answer
    any more. `busy` says that other work of the computer may have slowed an emulated board. `boot_log` is what the
    kernel said of itself earlier in this boot. `off_w` is what the meter read while the board was off; None if it was
    not asked then. `states` are the board's before the idle second and after the work, if they were read. `aged` is the
    filesystem before the work, if it was aged. With `held` no work was done, but a state held. With `inside_s` the
    board was off or asleep: the state begins so long after the start mark, and ends so long before the stop mark;
    without marks it is the trace's begin and end.
    """

    trace: Trace | None
    marks: tuple[str, str]
    idle_s: float
    idle_after: bool = False
    window: Window | None = None
    late_s: tuple[float, float] = (0.0, 0.0)
    part: bool = False
    usage: BoardUsage | None = None
    duration_s: float | None = None
    user_s: float | None = None
    sys_s: float | None = None
    unmount_s: float | None = None
    space: Space | None = None
    kernel_threads_s: dict[str, float] = field(default_factory=dict[str, float])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    image_bytes: int | None = None
    outcome: DamageOutcome | None = None
    crash: CrashFacts | None = None
    held: HeldFacts | None = None
    inside_s: float | None = None
    aged: AgeFacts | None = None
    board_lost: bool = False
    moved_bytes: int = 0
    fio: FioResult | None = None
    kernel_log: str = ""
    boot_log: str = ""
    busy: str = ""
    off_w: float | None = None
    states: tuple[StateReading, StateReading] | None = None
    complaints: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    attachments: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class Metered:
    """The trace's figures; all None without a trace or without its marks."""

    window: Window | None = None
    idle_window: Window | None = None
    energy: Energy | None = None
    complaints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(
    entry: Planned,
    evidence: WorkFacts,
    *,
    profile: BoardProfile,
    boot: int,
    storage: str,
    card: ImageFacts,
    started_utc: str,
) -> Measurement:
    """The measurement, with every reason not to believe it; `card` is the board's, `storage` the device under test."""
    jobs = entry.workload.programs
    metered = _metered(evidence, jobs * profile.window_excess_s)
    held, said_of_state = _held(evidence, metered)
    said, earlier = (list(kernel_log.messages(log)) for log in (evidence.kernel_log, evidence.boot_log))
    policy = profile.state_policy or StatePolicy()
    notes = [*evidence.notes, *(f"{KERNEL_WARNED}{each}" for each in kernel_log.warnings([*earlier, *said]))]
    if evidence.usage is not None and evidence.usage.device is None:
        notes.append(_UNCOUNTED)
    states = None if evidence.states is None else board_state.states_between(*evidence.states)
    if evidence.outcome is None and evidence.crash is None:
        complaints = [*evidence.complaints, *metered.complaints, *kernel_log.complaints(said)]
        damage = [each for each in earlier if each.kind.level is kernel_log.Level.BOOT]
        complaints += [f"earlier in this boot {each}" for each in kernel_log.complaints(damage)]
        notes += kernel_log.remarks(said)
        flash = evidence.usage.device.flash if evidence.usage and evidence.usage.device else None
        if flash and flash.failed_pages:
            complaints.append(f"{flash.failed_pages} pages of the flash had more wrong bits than their code corrects")
        if states is not None:
            complaints += board_state.complaints(states, policy)
            notes += board_state.notes(states, policy)
        complaints += [evidence.busy] if evidence.busy and complaints else []
    else:
        # The kernel complains of a filesystem that was damaged on purpose, and an outcome needs no energy.
        complaints = evidence.complaints
        if metered.complaints:
            metered = Metered(notes=(*metered.notes, *(f"no energy: {each}" for each in metered.complaints)))
    moved_mib = evidence.moved_bytes / MIB
    duration_s = evidence.duration_s
    if metered.window is not None and (duration_s is None or jobs > 1):
        # No clock on the board runs as long as a boot does. Each of several jobs knows only its own time, not the time
        # from the first start to the last end; with the window's time the throughput is never too high.
        duration_s = metered.window.duration_s
    usage, fio = evidence.usage, evidence.fio
    counters = usage.device if usage else None
    return Measurement(
        number=entry.number,
        slug=entry.slug,
        repetition=entry.repetition,
        boot=boot,
        kernel=entry.kernel,
        series=_series_key(entry, profile, storage, card),
        workload=entry.workload,
        started_utc=started_utc,
        # An emulated meter says so itself, whatever the environment file says of the board.
        simulated=profile.simulated or (evidence.trace is not None and evidence.trace.info.simulated),
        invalid_reasons=tuple(complaints),
        notes=(*notes, *metered.notes, *said_of_state),
        window_s=metered.window.duration_s if metered.window else None,
        duration_s=duration_s,
        duration_uncertainty_s=math.hypot(*evidence.late_s) / math.sqrt(3) if evidence.window else None,
        throughput_mib_per_s=moved_mib / duration_s if moved_mib and duration_s else None,
        iops=fio.ios / duration_s if fio and duration_s else None,
        energy=metered.energy,
        energy_mj_per_mib=energy.per_mib(metered.energy.gross_mj, evidence.moved_bytes) if metered.energy else None,
        energy_net_mj_per_mib=energy.per_mib(metered.energy.net_mj, evidence.moved_bytes) if metered.energy else None,
        cpu_s_per_mib=usage.cpu_busy_s / moved_mib if usage and moved_mib else None,
        write_amplification=(
            counters.written_bytes / evidence.moved_bytes
            if counters and entry.workload.only_writes and evidence.moved_bytes
            else None
        ),
        samples=evidence.trace.counts if evidence.trace and not evidence.part else None,
        counters=counters,
        cpu_busy_s=usage.cpu_busy_s if usage else None,
        user_s=evidence.user_s,
        sys_s=evidence.sys_s,
        unmount_s=evidence.unmount_s,
        space=evidence.space,
        aged=evidence.aged,
        kernel_threads_s=evidence.kernel_threads_s,
        counts=evidence.counts,
        image_bytes=evidence.image_bytes or (entry.on_root and not evidence.part and card.root_bytes) or None,
        outcome=evidence.outcome,
        crash=evidence.crash,
        held=held,
        projected=None
        if evidence.held
        else _projected(evidence, _model_of(entry, profile), metered.energy, duration_s),
        fio=fio,
        window=metered.window,
        idle_window=metered.idle_window,
        board_state=states,
    )


def _projected(
    evidence: WorkFacts, model: CardModel | None, energy: Energy | None, duration_s: float | None
) -> Projection | None:
    """The projection onto the storage's model, if it has one. A boot has none: its counters exceed its window."""
    counters = evidence.usage.device if evidence.usage else None
    if model is None or counters is None or duration_s is None or evidence.idle_after:
        return None
    return project(
        model,
        counters,
        moved_bytes=evidence.moved_bytes,
        duration_s=duration_s,
        energy=energy,
    )


def _model_of(entry: Planned, profile: BoardProfile) -> CardModel | None:
    device = device_of(entry.storage)
    return profile.card_model if device == CARD else profile.storages[device].model


def _series_key(entry: Planned, profile: BoardProfile, storage: str, card: ImageFacts) -> SeriesKey:
    title, content, made, mounted = "", entry.filesystem, card.make_options, card.mount_options
    if not isinstance(entry.workload, BlockWorkload):  # whose root is whatever its board has
        kind = filesystem(entry.filesystem)
        title, content = titled(kind.name)
        if not entry.on_root:
            made, mounted = kind.make[1:], kind.mount_options
    return SeriesKey(
        suite=entry.suite,
        board=profile.name,
        storage=storage,
        filesystem=content,
        make_options=made,
        mount_options=mounted,
        provision=entry.provision,
        workload=entry.workload.identity,
        title=title,
    )


def _metered(evidence: WorkFacts, allowed_s: float) -> Metered:
    trace = evidence.trace
    if trace is None:
        return Metered()
    if evidence.inside_s is not None:
        return _of_still(trace, evidence, evidence.inside_s, allowed_s)
    complaints = validity.sample_complaints(trace.counts) + validity.clock_complaints(trace)
    notes = tuple(validity.trace_notes(trace))
    window = evidence.window
    if window is None and not evidence.marks[0]:
        return Metered(complaints=tuple(complaints), notes=notes)
    if window is None:
        complaints += validity.mark_complaints(trace, evidence.marks)
        start, stop = ([m.time_us for m in trace.marks if m.text == text] for text in evidence.marks)
        if not start or not stop:
            return Metered(complaints=tuple(complaints), notes=notes)
        window = Window(float(start[0]), float(stop[-1]))
    worked_s = None if evidence.duration_s is None else evidence.duration_s + (evidence.unmount_s or 0.0)
    if worked_s is not None:
        complaints += validity.window_complaints(window, worked_s, allowed_s)
    idle = idle_window(trace, evidence.idle_s, after=evidence.idle_after)
    complaints += validity.clipping_complaints(trace, window, "the window")
    complaints += validity.clipping_complaints(trace, idle, "the idle window")
    slack_s = 0.0 if worked_s is None else max(0.0, window.duration_s - worked_s)
    try:
        result = energy.energy(trace, window, idle, slack_s=slack_s, late_s=evidence.late_s)
        complaints += plausible.flow_complaints(trace, window, "the window")
        complaints += plausible.flow_complaints(trace, idle, "the idle window")
    except MeasurementInvalid as error:
        return Metered(window, idle, None, (*complaints, *error.reasons), notes)
    complaints += validity.energy_complaints(result)
    if evidence.off_w is not None:
        complaints += plausible.off_complaints(evidence.off_w, result.idle_power_w.value)
    return Metered(window, idle, result, tuple(complaints), notes)


def _of_still(trace: Trace, evidence: WorkFacts, inside_s: float, allowed_s: float) -> Metered:
    """The figures of a board that is off or asleep, in which no current need flow; without marks of the whole trace."""
    complaints = validity.sample_complaints(trace.counts) + validity.clock_complaints(trace)
    edges = [int(each) for each in trace.times_us[[0, -1]]] if len(trace.times_us) else []
    if any(evidence.marks):
        complaints += validity.mark_complaints(trace, evidence.marks)
        edges = [mark.time_us for text in evidence.marks for mark in trace.marks if mark.text == text]
    notes = tuple(validity.trace_notes(trace))
    if len(edges) != len(evidence.marks):
        return Metered(complaints=tuple(complaints), notes=notes)
    whole = Window(float(edges[0]), float(edges[1]))
    if evidence.duration_s is not None:
        complaints += validity.window_complaints(whole, evidence.duration_s, allowed_s)
    window = Window(whole.start_us + inside_s * 1e6, whole.stop_us - inside_s * 1e6)
    if window.duration_s < _LEAST_STILL_S:
        said = f"{max(0.0, window.duration_s):.2f} s of the state are left, and {_LEAST_STILL_S:g} s are needed"
        return Metered(complaints=(*complaints, f"{said}: hold it longer (seconds)"), notes=notes)
    complaints += validity.clipping_complaints(trace, window, "the window")
    try:
        result = energy.energy(trace, window, window)
        complaints += plausible.swap_complaints(trace, window, "the window")
    except MeasurementInvalid as error:
        return Metered(window, window, None, (*complaints, *error.reasons), notes)
    return Metered(window, window, result, (*complaints, *validity.energy_complaints(result)), notes)


def _held(evidence: WorkFacts, metered: Metered) -> tuple[HeldFacts | None, list[str]]:
    """How the board was held, with the drift of its power; and what there is to say of it."""
    held, trace = evidence.held, evidence.trace
    if held is None or trace is None or metered.window is None or metered.energy is None:
        return held, []
    slope, notes = drift(trace, metered.window), list[str]()
    if not metered.energy.mean_power_w.uncertainty:
        notes.append("the meter has no voltage: it is behind the switch, and what flows before it is not seen")
    return replace(held, drift_w_per_min=slope), notes + _held_notes(held, metered.energy.mean_power_w, slope)


def _held_notes(held: HeldFacts, power: Value, slope: Value | None) -> list[str]:
    """Of a power that is none, or not steady, and of who woke the board."""
    notes = list[str]()
    if abs(power.value) < _FAR * power.uncertainty:
        notes.append(
            f"not told from zero: its power is within the meter's own error, {power.uncertainty * 1e3:.2g} mW (k=1); "
            "what flows before the meter is not seen"
        )
    elif slope is not None and abs(slope.value) > DRIFT_FAR * slope.uncertainty:
        share, u = (100 * each / power.value for each in (abs(slope.value), slope.uncertainty))
        notes.append(
            f"not steady: its power {'rises' if slope.value > 0 else 'falls'} by {share:.2g} ± {u:.1g} % a minute"
        )
    if held.interrupts_per_s is not None:
        by, woken = (
            ", ".join(f"{name} {rate:.3g}" for name, rate in each.items())
            for each in (held.woken_by_per_s, held.woken_per_s)
        )
        notes.append(
            f"{held.interrupts_per_s:.4g} interrupts a second: {by}; woken most often, a second: {woken}; "
            f"{held.programs_per_s or 0:.3g} programs started a second"
        )
    return notes


def idle_window(trace: Trace, idle_s: float, *, after: bool = False) -> Window:
    """The middle of the first `idle_s` seconds of a trace, or of the last ones."""
    if not len(trace.times_us):
        return Window(0.0, 0.0)
    length_us = idle_s * 1e6 - 2 * _IDLE_MARGIN_US
    if after:
        stop_us = float(trace.times_us[-1]) - _IDLE_MARGIN_US
        return Window(stop_us - length_us, stop_us)
    start_us = float(trace.times_us[0]) + _IDLE_MARGIN_US
    return Window(start_us, start_us + length_us)


def project(
    card: CardModel, counters: DeviceCounters, *, moved_bytes: int, duration_s: float, energy: Energy | None
) -> Projection:
    """Add the time and energy of `card` to a measurement of `duration_s` on a board whose own card takes no time.

    `counters` are the window's, `moved_bytes` the workload's. Discards cost nothing.
    """
    read_mib, written_mib = counters.read_bytes / MIB, counters.written_bytes / MIB
    erases = counters.flash.erases if counters.flash else 0
    time, energies = card.time, card.energy
    card_s = 1e-6 * (
        counters.reads * time.read_request_us
        + read_mib * time.read_us_per_mib
        + counters.writes * time.write_request_us
        + written_mib * time.write_us_per_mib
        + counters.flushes * time.flush_us
        + erases * time.erase_us
    )
    metered_mj = 1e-3 * (read_mib * energies.read_uj_per_mib + written_mib * energies.write_uj_per_mib)
    unmetered_mj = 1e-3 * (
        counters.reads * energies.read_request_uj
        + counters.writes * energies.write_request_uj
        + counters.flushes * energies.flush_uj
        + erases * energies.erase_uj
    )
    both_s = duration_s + card_s
    both_mj = None
    if energy is not None:
        both_mj = energy.gross_mj.value + 1e3 * energy.idle_power_w.value * card_s + unmetered_mj
    mib = moved_bytes / MIB
    return Projection(
        card=card.name,
        card_s=card_s,
        card_mj=metered_mj + unmetered_mj,
        card_mib_per_s=mib / card_s if mib and card_s else None,
        card_mj_per_mib=(metered_mj + unmetered_mj) / mib if mib else None,
        both_s=both_s,
        both_mj=both_mj,
        both_mib_per_s=mib / both_s if mib and both_s else None,
        both_mj_per_mib=both_mj / mib if mib and both_mj is not None else None,
    )
