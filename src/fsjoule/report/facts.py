"""Facts as name and text, for the page: a measurement's figures, and the facts needed to repeat a run."""

from __future__ import annotations

import shlex
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from fsjoule.model import (
    BoardFacts,
    BoardStates,
    EnergyBudget,
    FlashCounters,
    HeldFacts,
    ImageFacts,
    KernelFacts,
    LabFacts,
    Measurement,
    MeterInfo,
    PlainInfo,
    Run,
    Value,
)
from fsjoule.model.board_state import mhz_text
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.operation import size_label
from fsjoule.report.numbers import ABSENT, samples_text
from fsjoule.report.summary import MEASURING, outcome_text

Fact = tuple[str, str]

_WORTH_NAMING: Final = 0.01
# docs/energy.md has their formulas.
_CAUSES: Final = {
    "shunt_rounding_mj": "rounded current",
    "bus_rounding_mj": "rounded voltage",
    "offset_mj": "offset of the converters",
    "gain_mj": "gain of the converters",
    "shunt_mj": "shunt resistor",
    "marks_mj": "late marks",
    "slack_mj": "window longer than the work",
    "sampling_mj": "time between samples",
    "gaps_mj": "gaps in the trace",
    "idle_mj": "idle power",
}


def measurement_facts(measurement: Measurement) -> list[Fact]:
    """All known figures of one measurement, with their units."""
    m = measurement
    facts = [
        ("started", m.started_utc),
        ("boot", str(m.boot)),
        ("place", m.place or ABSENT),
        ("window between marks", _figure(m.window_s, "s", 4)),
        # Not those that other facts have in more detail.
        *(
            (row.name, _figure(row.figure(m), row.printed_unit, row.decimals))
            for row in (metric.row for metric in Metric)
            if row.decimals is not None
        ),
        *_outcome_facts(m),
        *_crash_facts(m),
        *_energy_facts(m),
        *_held_facts(m.held),
        ("CPU busy", _figure(m.cpu_busy_s, "s", 3)),
        *_device_facts(m),
        *_projected_facts(m),
        *_latency_facts(m),
        ("samples", samples_text(m.samples) if m.samples else ABSENT),
        *_state_facts(m.board_state),
    ]
    return [(name, text) for name, text in facts if text != ABSENT]


def _outcome_facts(m: Measurement) -> list[Fact]:
    outcome = m.outcome
    if outcome is None:
        return []
    return [
        ("outcome", outcome_text(outcome)),
        ("not intact", ", ".join(outcome.damaged) or ABSENT),
        ("the checker's exit code", ABSENT if outcome.check_exit is None else str(outcome.check_exit)),
        ("power cut after", _figure(outcome.cut_s, "s", 3)),
        ("seed", ABSENT if outcome.seed is None else str(outcome.seed)),
        *((f"kernel's message {i}", message) for i, message in enumerate(outcome.messages, start=1)),
    ]


def _crash_facts(m: Measurement) -> list[Fact]:
    crash = m.crash
    if crash is None:
        return []
    return [
        ("crash states", crash.text),
        ("why the first loss happens", crash.cause or ABSENT),
        *((f"loss {i}", loss) for i, loss in enumerate(crash.first_losses, start=1)),
        (
            "recorded",
            f"{crash.writes:,} writes in {crash.epochs} epochs, {crash.promises} promises; log {crash.log_sha256}",
        ),
        ("states up to the bound", f"{crash.states:,}, {crash.different:,} of them different"),
        ("mount of a state, median", ABSENT if crash.mount_s is None else crash.mount_s.text),
        ("checker of a state, median", ABSENT if crash.check_s is None else crash.check_s.text),
        ("energy of a mount, median", ABSENT if crash.mount_mj is None else crash.mount_mj.text),
        ("energy of a check, median", ABSENT if crash.check_mj is None else crash.check_mj.text),
    ]


def _energy_facts(m: Measurement) -> list[Fact]:
    energy = m.energy
    if energy is None:
        return []
    check = ABSENT
    if energy.check_mj is not None:
        check = f"{energy.check_mj:.3f} mJ counted by the meter, {energy.check_sum_mj:.3f} mJ from its samples"
    return [
        ("SD of power over samples", _figure(energy.power_sd_w, "W", 4)),
        ("idle power", _figure(energy.idle_power_w, "W", 4)),
        ("energy's uncertainty, by cause, in mJ", _budget(energy.gross_budget)),
        ("net energy's uncertainty, by cause, in mJ", _budget(energy.net_budget)),
        ("the meter's own sum", check),
        (
            "samples that did not arrive",
            f"{energy.lost_ticks}, bridged by the meter's own sums" if energy.lost_ticks else ABSENT,
        ),
        (
            "samples that were not taken",
            f"{energy.missed_ticks}, filled in from their neighbours" if energy.missed_ticks else ABSENT,
        ),
    ]


def _held_facts(held: HeldFacts | None) -> list[Fact]:
    if held is None:
        return []
    drift = held.drift_w_per_min
    told = ABSENT if drift is None else f"{drift.value * 1e3:.3f} ± {drift.uncertainty * 1e3:.3f} mW a minute"
    return [("drift of the power", told), ("asleep", _figure(held.slept_s, "s", 2))]


def _budget(budget: EnergyBudget) -> str:
    """A budget's causes, largest first, without those below 1 % of the whole."""
    total_mj = budget.total_mj
    parts = {_CAUSES[field.name]: getattr(budget, field.name) for field in fields(budget)}
    ranked = sorted(parts.items(), key=lambda part: part[1], reverse=True)
    named = [f"{name} {mj:.2f}" for name, mj in ranked if mj > _WORTH_NAMING * total_mj]
    return f"{', '.join(named)}: together {total_mj:.2f}" if named else ABSENT


def _device_facts(m: Measurement) -> list[Fact]:
    counters = m.counters
    if counters is None:
        return []
    if counters.flash:
        return [
            ("pages loaded", _requests(counters.reads, counters.read_bytes)),
            ("pages programmed", _requests(counters.writes, counters.written_bytes)),
            *_flash_facts(counters.flash),
        ]
    return [
        ("device reads", _requests(counters.reads, counters.read_bytes)),
        ("device writes", _requests(counters.writes, counters.written_bytes)),
        ("device flushes, discards", f"{counters.flushes}, {counters.discards}"),
        ("requests took", f"{counters.request_ms / 1000:.3f} s"),
    ]


def _flash_facts(flash: FlashCounters) -> list[Fact]:
    worn = ABSENT if flash.most_erased is None else f"{flash.most_erased} times"
    return [
        ("blocks erased", str(flash.erases)),
        ("most erased block", worn),
        ("bits corrected, bad blocks", f"{flash.corrected_bits}, {flash.bad_blocks}"),
    ]


def _projected_facts(m: Measurement) -> list[Fact]:
    projected = m.projected
    if projected is None:
        return []
    both_mj = ABSENT if projected.both_mj is None else f"{projected.both_mj:.1f} mJ"
    return [
        (f"card {projected.card}, projected", f"{projected.card_s:.4f} s, {projected.card_mj:.2f} mJ"),
        ("kernel's path and card, projected", f"{projected.both_s:.4f} s, {both_mj}"),
    ]


def _latency_facts(m: Measurement) -> list[Fact]:
    if m.fio is None:
        return []
    # fio's percentiles are middles of its histogram's bins, so that the largest may exceed the maximum, which is exact.
    percentiles = [
        f"p{float(name):g} {min(ns, m.fio.latency_max_ns) / 1e6:.3f}"
        for name, ns in m.fio.latency_percentiles_ns.items()
        if float(name) >= 50  # noqa: PLR2004
    ]
    parts = [f"mean {m.fio.latency_mean_ns / 1e6:.3f}", *percentiles, f"max {m.fio.latency_max_ns / 1e6:.3f}"]
    return [
        ("completion latency, ms", ", ".join(parts)),
        ("fio's CPU", f"{m.fio.usr_cpu_percent:.1f} % user, {m.fio.sys_cpu_percent:.1f} % system"),
    ]


def _state_facts(states: BoardStates | None) -> list[Fact]:
    if states is None:
        return []
    both, after = (states.before, states.after), states.after
    caps = {name: f", at most {mhz_text(khz)}" for name, khz in after.cap_khz.items()}
    held_back = {**after.throttle_counts, **after.throttle_levels, "the firmware's flags": after.firmware_flags or 0}
    facts = {
        "governor": [f"{name} {text}{caps.get(name, '')}" for name, text in after.governors.items()],
        "time at frequencies, with the idle second": [
            f"{name} {mhz_text(int(khz))} {seconds:.2f} s"
            for name, at_khz_s in states.at_khz_s.items()
            for khz, seconds in at_khz_s.items()
            if seconds
        ],
        "temperature, before and after": [
            f"{each.hottest_c:.1f} °C ({each.hottest_zone})" for each in both if each.hottest_c is not None
        ],
        "held back since the boot": [f"{name} {count}" for name, count in held_back.items() if count],
        "load, before and after": [f"{each.load:.2f}" for each in both if each.load is not None],
        "ran beside it": states.ran,
    }
    return [(name, ", ".join(texts) or ABSENT) for name, texts in facts.items()]


def _requests(count: int, size_bytes: int) -> str:
    amount = size_label(size_bytes) if size_bytes % 1024 == 0 else f"{size_bytes} B"
    return f"{counted(count, 'request')}, {amount} in all"


def _figure(figure: Value | Figure, unit: str, decimals: int) -> str:
    if figure is None:
        return ABSENT
    if isinstance(figure, Value):
        return f"{figure.value:.{decimals}f} ± {figure.uncertainty:.{decimals}f} {unit}"
    return f"{figure:.{decimals}f} {unit}".rstrip()


def no_trace(m: Measurement) -> str:
    """Why nothing is drawn for a measurement without a trace; one that was lost is a ResultError of its reader."""
    if m.samples is not None and m.samples.received:
        return "its trace was not pulled with the run"
    if m.window is not None:
        return "its trace is that of the whole boot"
    return "the meter recorded nothing: there is no trace and no energy"


def run_facts(run: Run) -> list[tuple[str, list[Fact]]]:
    """All facts needed to repeat the run, in named groups; empty groups are left out."""
    plan = run.plan
    groups: list[tuple[str, list[Fact]]] = [
        (
            "Plan",
            [
                ("suite", plan.suite),
                ("filesystems", ", ".join(plan.filesystems)),
                ("kernels", ", ".join(plan.kernels)),
                ("provisioned as", ", ".join(dict.fromkeys(entry.provision.value for entry in plan.entries))),
                ("size factor", ", ".join(f"{name} {factor:g}" for name, factor in plan.size_factors.items())),
                ("left out", "; ".join(plan.left_out)),
                ("adjusted", "; ".join(plan.adjusted)),
                (
                    "repetitions",
                    f"{plan.repeat}, until each figure was decided" if plan.until_decided else str(plan.repeat),
                ),
                ("seed of the order", str(plan.seed)),
                ("workloads", ", ".join(dict.fromkeys(entry.workload.label for entry in plan.entries))),
            ],
        ),
        ("Board", _board_facts(run)),
        *_place_facts(run),
        ("LAVA", _job_facts(run)),
        ("Imported", [("from", run.imported.text), *run.imported.files.items()] if run.imported else []),
        *((f"Kernel {kernel.label}", _kernel_facts(kernel, run.boards.get(kernel.label))) for kernel in run.kernels),
        *(
            (f"Card with {image.kernel_choice} and {image.root_filesystem}", _image_facts(image))
            for image in run.images
        ),
        *_meters_facts(run),
        ("Computer", [("highest load of a minute", run.load.text)] if run.load else []),
        ("Versions", list(run.versions.items())),
    ]
    return [(name, facts) for name, facts in groups if facts]


def command_text(run: Run) -> str:
    return shlex.join(run.command)


def kernels_text(run: Run) -> str:
    """`kernel 6.1.0-50-armmp`, or the labels of several."""
    if len(run.plan.kernels) > 1:
        return f"kernels {', '.join(run.plan.kernels)}"
    return f"kernel {run.board.kernel_release if run.board else ''.join(run.plan.kernels)}"


def _board_facts(run: Run) -> list[Fact]:
    board = run.board
    if board is None:
        return []
    return [
        ("name", board.name),
        ("machine", board.machine),
        ("CPU", f"{board.cpus} x {board.cpu}"),
        ("memory", size_label(board.memory_bytes)),
        ("storage", f"{board.storage}, {size_label(board.storage_bytes)}, {board.storage_bus}"),
        ("root filesystem", board.root_filesystem),
        *emmc_facts(run),
    ]


def emmc_facts(run: Run) -> list[Fact]:
    """A line for each eMMC: what it can do, and its wear."""
    return [(f"eMMC {name}", facts.text) for name, facts in run.emmcs.items()]


def _place_facts(run: Run) -> list[tuple[str, list[Fact]]]:
    """The lab, or the places of a pool, each with the time for which it was held and its share of measuring."""
    if not run.places:
        return [("Lab", _lab_facts(run.lab))] if run.lab is not None else []
    groups: list[tuple[str, list[Fact]]] = []
    for each in sorted(run.places, key=lambda each: each.lab.place):
        measuring_s = sum(each.phases_s.get(name, 0.0) for name in MEASURING)
        share = f", measuring for {measuring_s / each.held_s:.0%} of it" if each.held_s else ""
        held = ("held", f"{each.held_s:.0f} s{share}")
        groups.append((f"Place {each.lab.place}", [*_lab_facts(each.lab)[1:], held]))
    return groups


def _meters_facts(run: Run) -> list[tuple[str, list[Fact]]]:
    """The meter, or that of each place in real time."""
    if run.meter is not None:
        return [("Meter", _meter_facts(run.meter))]
    return [(f"Meter of {each.lab.place}", _meter_facts(each.meter)) for each in run.places if each.meter is not None]


def _lab_facts(lab: LabFacts) -> list[Fact]:
    port = lab.meter
    meter = "" if port is None else ", ".join(filter(None, (port.resource, port.address, port.path)))
    facts = [
        ("place", lab.place),
        ("coordinator", lab.coordinator),
        ("exporter", lab.exporters_text),
        ("meter's port", meter),
        ("measured by", lab.user),
    ]
    return [(name, text) for name, text in facts if text]


def _job_facts(run: Run) -> list[Fact]:
    job = run.job
    if job is None:
        return []
    pulled = "made anew from the job's log: no traces" if job.pulled else ""
    return [(name, text) for name, text in (("job", job.text), ("page", job.url), ("run folder", pulled)) if text]


def _kernel_facts(kernel: KernelFacts, board: BoardFacts | None) -> list[Fact]:
    says = f"{board.kernel_release} {board.kernel_version}" if board else ABSENT
    facts = [
        ("asked for as", kernel.asked),
        ("from", kernel.origin.value),
        ("release", kernel.release),
        ("the board says", says),
        ("tick", f"{board.tick_hz} a second (HZ)" if board and board.tick_hz else ""),
        ("package", kernel.package),
        ("git describe", kernel.git_describe),
        ("image, device tree and modules, SHA-256", kernel.digest),
        *((f"{name}, SHA-256", checksum) for name, checksum in kernel.checksums.items()),
        ("modules that it lacks", ", ".join(each for each in kernel.lacks if not each.isupper())),
    ]
    return [(name, text) for name, text in facts if text]


def _image_facts(image: ImageFacts) -> list[Fact]:
    return [
        ("recipe", image.recipe),
        ("card, SHA-256", image.card_sha256),
        *((f"{name}, SHA-256", checksum) for name, checksum in image.checksums.items()),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(image.packages.items()))),
    ]


def _meter_facts(meter: MeterInfo) -> list[Fact]:
    if isinstance(meter, PlainInfo):
        return [
            ("instrument", meter.instrument),
            ("firmware", meter.firmware),
            ("serial number", meter.serial_number),
            ("rate", f"{meter.rate_hz} samples/s"),
            *((name.replace("_", " "), f"{value:g}") for name, value in sorted(meter.settings.items())),
            ("kind", "emulated" if meter.simulated else "hardware"),
        ]
    shunt = f"{meter.shunt_uohm / 1e6:g} Ohm, range {meter.shunt_range_mv} mV"
    return [
        ("chip", meter.chip.value),
        ("firmware", f"{meter.firmware}, protocol {meter.protocol}"),
        ("serial number", meter.serial_number),
        ("rate", f"{meter.rate_hz} samples/s"),
        ("shunt", shunt),
        ("zero calibration", _date(meter.calibration.zero_date)),
        ("gain calibration", _date(meter.calibration.gain_date)),
        ("kind", "emulated" if meter.simulated else "hardware"),
    ]


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d") if seconds else "never"
