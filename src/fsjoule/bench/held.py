"""States that a board is held in: idle, with a steady load, suspended to RAM, off; and who wakes it meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.boots import Boots, CurrentBoot
from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.measurer import IDLE_S, Measurer, recorded
from fsjoule.bench.onboard import held as onboard
from fsjoule.bench.own_command import CommandWork
from fsjoule.bench.scratch import perform, provisioning
from fsjoule.errors import BoardError, MeasurementInvalid
from fsjoule.model import HeldFacts, HeldState, HeldWorkload, Planned
from fsjoule.model.filesystem import Filesystem

_MARGIN_S: Final = 60.0
_SLOWEST: Final = 20.0
# What is left in the board's capacitors flows first.
_DISCHARGE_S: Final = 5.0
# The outlet's relay and the ends of the recording.
_EDGE_S: Final = 0.5
# An alarm of a clock comes at a whole second, and what wakes before the kernel takes its time.
_WAKING_S: Final = 1.0
_EARLY_S: Final = 2.0
_LAST: Final = 300


@dataclass(frozen=True, slots=True)
class HeldWork:
    """One state of a board for one time. `contents` are the plan's files by their SHA-256."""

    entry: Planned
    workload: HeldWorkload
    contents: Mapping[str, bytes]

    def measure(self, measurer: Measurer) -> WorkFacts:
        """Hold a booted board idle, with the command beside, or suspended. Raises LabError if it does not answer."""
        return measurer.around(self.entry, lambda kind: self._measure(measurer, kind))

    def _measure(self, measurer: Measurer, kind: Filesystem) -> WorkFacts:
        with measurer.phases("provisioning"):
            measurer.install({path: text.encode() for path, text in onboard.SCRIPTS.items()})
            argv = self._prepared(measurer, kind)
        if self.workload.state is HeldState.SUSPEND:
            return self._suspended(measurer)
        held = (onboard.HELD, f"{self.workload.held_s:g}", str(self.workload.copies), *argv)
        # A board in guest time that is busy takes several times as long on its host.
        limit_s = self.workload.held_s * (_SLOWEST if measurer.profile.guest_time else 1.0) + _MARGIN_S
        # perf looks around once a second: a board that counts is not idle.
        evidence, done = measurer.timed(
            measurer.numbered(self.entry), held, around=(onboard.WATCHED,), counted=False, time_limit_s=limit_s
        )
        with measurer.phases("reading"):
            before, after, said = measurer.shell.get_all((onboard.SEEN_BEFORE, onboard.SEEN_AFTER, onboard.SAID))
            if done.exit_code:
                words = f"{CommandWork.output(measurer).decode(errors='replace')}{said.decode(errors='replace')}"
                what = f"`{' '.join(self.workload.command.argv) or 'sleep'}` did not run for {self.workload.held_s:g} s"
                evidence.complaints.insert(0, f"{what}, so the state was none: {words.strip()[-_LAST:]}")
        evidence.held = onboard.watched(before.decode(errors="replace"), after.decode(errors="replace"))
        if evidence.held is None:
            evidence.held = HeldFacts()
            evidence.notes.append("what woke the board is not known: /proc/interrupts could not be read")
        return evidence

    def _prepared(self, measurer: Measurer, kind: Filesystem) -> tuple[str, ...]:
        """Mount what is to be mounted, and do what comes before; returns the command with its files' places."""
        if self.workload.mounted and kind.raw:
            raise MeasurementInvalid("mounted", ["raw is a device without a filesystem: nothing can be mounted"])
        shell, command, directory = measurer.shell, self.workload.command, onboard.DIRECTORY
        work = CommandWork(self.entry, self.workload, command, self.contents)
        work.put_files(measurer)
        measurer.scratch.unmount()
        if self.workload.mounted:
            directory, steps = provisioning(measurer.scratch, kind, self.entry.provision)
            perform(shell, steps)
        for argv in command.prepare:
            work.prepare(measurer, argv, work.words(directory, argv, sync=False))
        measurer.settle()
        return work.words(directory, command.argv, sync=False) if command.argv else ()

    def _suspended(self, measurer: Measurer) -> WorkFacts:
        able = measurer.shell.run((onboard.SUSPENDABLE,))
        why = " ".join(able.stdout.split())
        if able.exit_code == onboard.LACKS:
            return WorkFacts(
                trace=None, marks=("", ""), idle_s=IDLE_S, notes=[f"no figure, for lack of the state: {why}"]
            )
        if able.exit_code:
            raise MeasurementInvalid("suspend", [f"not suspended: {why}"])
        limit_s = self.workload.held_s + _MARGIN_S
        argv = (onboard.SUSPENDED, f"{self.workload.held_s:g}")
        try:
            evidence, done = measurer.timed(measurer.numbered(self.entry), argv, counted=False, time_limit_s=limit_s)
        except BoardError as error:
            # That it does not wake up is the board's own answer: to ask again would give the same.
            return WorkFacts(
                trace=None,
                marks=("", ""),
                idle_s=IDLE_S,
                held=HeldFacts(),
                board_lost=True,
                complaints=[f"suspended, and it did not resume: {error.what.partition(chr(10))[0]}"],
            )
        evidence.held, evidence.inside_s = HeldFacts(), 0.0
        with measurer.phases("reading"):
            slept, said = measurer.shell.get_all((onboard.SLEPT, onboard.SAID))
            log = measurer.kernel_log()
        if done.exit_code:
            words = " ".join(said.decode(errors="replace").split())
            evidence.complaints.insert(0, f"the kernel did not suspend to RAM: {words[-_LAST:]}")
            return evidence
        awake_s = evidence.duration_s or 0.0
        try:
            took_s, slept_s, resume_s = onboard.asleep(slept.decode(errors="replace"), log, awake_s)
        except ValueError:
            evidence.complaints.append(f"the time asleep cannot be read: {slept[-_LAST:]!r}")
            return evidence
        evidence.held = HeldFacts(slept_s=slept_s, resume_s=resume_s)
        evidence.duration_s, evidence.inside_s = took_s, awake_s + _WAKING_S
        mode = re.search(r"\[(\S+)\]", able.stdout)
        evidence.notes.append(
            f"asleep for {slept_s:.2f} s of {took_s:.2f} s ({mode[1] if mode else 'mem'}); its power is that of the "
            f"time asleep, without {evidence.inside_s:.2f} s at either end"
        )
        if slept_s < self.workload.held_s - _EARLY_S:
            evidence.complaints.append(
                f"it was asleep for {slept_s:.2f} s of {self.workload.held_s:g} s: something else woke it"
            )
        return evidence

    def measure_off(self, boots: Boots) -> tuple[CurrentBoot, WorkFacts]:
        """Record the meter while the board is off; the board is booted then, for what it says of itself."""
        boots.prepare(self.entry)
        with boots.phases("idle"):
            boots.rest(_DISCHARGE_S)
            with recorded(boots.meter, boots.rest) as recording:
                boots.rest(self.workload.held_s + 2 * _EDGE_S)
        evidence = WorkFacts(trace=recording.trace, marks=("", ""), idle_s=IDLE_S, inside_s=_EDGE_S, held=HeldFacts())
        if recording.trace is None:
            what = "the meter says nothing while the board is off: it is behind the switch, or fed by the board"
            evidence.complaints.append(f"{what} ({recording.note})")
        return boots.boot(self.entry), evidence
