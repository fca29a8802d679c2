"""Crash states in a table, and in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.model import CrashFacts, CrashWorkload, Measurement
from fsjoule.model.crash import CrashFate, StateEnergies, StateTimes
from fsjoule.model.write_log import MARK, LogEntry, WriteLog
from fsjoule.report.numbers import ABSENT
from fsjoule.report.summary import Summary
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled

_FOOTNOTE: Final = (
    "A loss: a promise is broken, or the filesystem cannot be mounted or written. Unclean: all is there, and the "
    "checker finds faults. Torn: losses in which a write reached the medium in part. Mount and check: median / 95 % / "
    "longest of the states."
)
_OF_UPDATES: Final = (
    "A loss of an update: the board does not start, starts a version that is not whole or not the promised one, or "
    "cannot be updated again."
)
_SECONDS: Final = r"\d+(?:\.\d+)?(?:e-\d+)?"
_TIMES: Final = re.compile(rf"[a-z]+ (?P<mount>{_SECONDS}) (?P<check>{_SECONDS})(?= |$)")


@dataclass(frozen=True, slots=True)
class KeptCrashes:
    """What a measurement of crash states has kept: its log, its promises in order, and each checked state's fate.

    Of an update no mounts were `timed`.
    """

    log: WriteLog
    promises: tuple[str, ...]
    fates: dict[str, str]
    timed: bool = True

    @classmethod
    def read(cls, attachment: Callable[[str], bytes | None]) -> KeptCrashes:
        """From the attachments, by name. Raises ResultError, MeasurementInvalid for a log that is cut short."""
        writes, promises, states = (
            (attachment(name) or b"").decode(errors="replace").splitlines()
            for name in ("writes.txt", "promises.txt", "states.txt")
        )
        entries = [LogEntry.read(line.partition(" ")[2]) for line in writes]
        marks = {each.content for each in entries if each.flags & MARK and each.content.isdigit()}
        fates = {name: fate for name, _, fate in (line.partition(" ") for line in states)}
        return cls(WriteLog(entries, marks), tuple(promises), fates)

    @property
    def times_s(self) -> dict[str, list[float]]:
        """The seconds of all mounts, and of all checks; 0 is none."""
        told = [_TIMES.match(fate) for fate in self.fates.values()] if self.timed else []
        both = {name: [float(each[name]) for each in told if each] for name in ("mount", "check")}
        return {name: [each for each in seconds if each] for name, seconds in both.items()}

    @property
    def losing_epochs(self) -> frozenset[int]:
        """The epochs with a state that is a loss."""
        lost = (name for name, fate in self.fates.items() if CrashFate(fate.split()[0]).is_loss)
        return frozenset(self.log.state(name).epoch for name in lost)


def crash_table(summary: Summary) -> Table | None:
    """A row per measurement of crash states; None without one."""
    measured = [(m, m.crash) for m in summary.crashes if m.crash is not None]
    if not measured:
        return None
    several = {"kernel": summary.several_kernels, "storage": summary.several_storages}
    filled: list[Filled] = [
        (Column("filesystem", is_figure=False, head=True), [Cell(m.series.filesystem_title) for m, _ in measured]),
        (Column("program", is_figure=False), [Cell(m.workload.label.partition("-states-")[2]) for m, _ in measured]),
        *(
            (
                Column(name, is_figure=False),
                [Cell(m.kernel if name == "kernel" else m.series.device) for m, _ in measured],
            )
            for name, shown in several.items()
            if shown
        ),
        (Column("losses"), [_count(crash.losses, Tone.BAD if crash.losses else Tone.GOOD) for _, crash in measured]),
        (Column("of states"), [_count(crash.count) for _, crash in measured]),
        (Column("not checked"), [_count(crash.different - crash.count, Tone.DOUBT) for _, crash in measured]),
        (Column("unclean"), [_count(crash.checked.get(CrashFate.UNCLEAN, 0), Tone.DOUBT) for _, crash in measured]),
        (Column("torn"), [_count(crash.torn) for _, crash in measured]),
        (Column("promises"), [_count(crash.promises) for _, crash in measured]),
        (Column("writes"), [_count(crash.writes) for _, crash in measured]),
        (Column("mount", "ms", optional=True), [_times(crash.mount_s) for _, crash in measured]),
        (Column("check", "ms", optional=True), [_times(crash.check_s) for _, crash in measured]),
        (Column("a mount", "mJ", optional=True), [_energy(crash.mount_mj) for _, crash in measured]),
    ]
    nothing = {"not checked": "0", "mount": ABSENT, "check": ABSENT, "a mount": ABSENT}
    filled = [
        (column, cells)
        for column, cells in filled
        if column.name not in nothing or any(each.text != nothing[column.name] for each in cells)
    ]
    groups = [m.workload.label for m, _ in measured]
    return assembled("What a power cut can cost", filled, simulated=summary.simulated, groups=groups)


def crash_footnote(summary: Summary) -> str:
    """What a loss is, and the other words of the table."""
    updates = [isinstance(m.workload, CrashWorkload) and bool(m.workload.confirm) for m in summary.crashes]
    return " ".join([*([] if all(updates) else [_FOOTNOTE]), *([_OF_UPDATES] if any(updates) else [])])


def crash_causes(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Filesystem and program, and why the first loss happens, of each measurement with a loss."""
    lost = [(m, m.crash) for m in summary.crashes if m.crash is not None and m.crash.losses]
    return tuple(
        (f"{m.series.filesystem_title}, {m.workload.label}", crash.cause or ", ".join(crash.first_losses[:1]))
        for m, crash in lost
    )


def crash_costs(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Filesystem and step, and what mounts and checks of the states took, with the slowest and hungriest state."""
    costs = [
        (f"{m.series.filesystem_title}, {step}", "; ".join(each.text for each in taken if each is not None))
        for m, crash in ((m, m.crash) for m in summary.crashes)
        if crash is not None
        for step, taken in (("mount", (crash.mount_s, crash.mount_mj)), ("check", (crash.check_s, crash.check_mj)))
    ]
    return tuple((name, text) for name, text in costs if text)


def crash_headline(measurements: Sequence[Measurement]) -> str:
    """`No state is a loss on ext4, f2fs. 12 of 345 states are a loss on vfat.`, or nothing without crash states."""
    facts: dict[str, list[CrashFacts]] = {}
    for m in measurements:
        if m.crash is not None and m.valid:
            facts.setdefault(m.series.filesystem_title, []).append(m.crash)
    safe = [name for name, those in facts.items() if not any(each.losses for each in those)]
    parts = [f"No state is a loss on {', '.join(safe)}."] if safe else []
    for name, those in facts.items():
        losses, torn = sum(each.losses for each in those), sum(each.torn for each in those)
        if name not in safe:
            only = ", all of them with a torn write" if torn == losses else ""
            parts.append(f"{losses:,} of {sum(each.count for each in those):,} states are a loss on {name}{only}.")
    return " ".join(parts)


def _count(number: int, tone: Tone = Tone.PLAIN) -> Cell:
    return Cell(f"{number:,}" if number else "0", tone=tone if number or tone is Tone.GOOD else Tone.PLAIN)


def _times(times: StateTimes | None) -> Cell:
    """`21 / 30 / 41`: median, 95 % and longest, in ms."""
    return Cell(
        ABSENT if times is None else " / ".join(f"{1e3 * each:.3g}" for each in (times.median, times.p95, times.most))
    )


def _energy(energies: StateEnergies | None) -> Cell:
    return Cell(ABSENT if energies is None else f"{energies.median:.3g} ± {energies.uncertainty:.2g}")
