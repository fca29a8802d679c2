"""A user's own program as work: its files on the board, its run between the marks, and what it says that it moved."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.scratch import checked, perform, provisioning
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import KIB, MIB, CrashWorkload, HeldWorkload, Planned, Provision, TimedWorkload
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.workload import OwnCommand

_FOLDER: Final = f"{onboard.DIRECTORY}/own"
_OUTPUT: Final = f"{onboard.DIRECTORY}/output"
# What it prints stays in memory: a console would slow it down, and could carry the marks. The program alone is in the
# directory: busybox's timeout leaves a process behind for up to a second, which would keep the filesystem busy.
_RUN: Final = f'"$@" < /dev/null > {_OUTPUT} 2>&1\n'
_INSIDE: Final = ("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh")
_SYNCED: Final = "status=$?\nsync\nexit $status\n"
_MARGIN_S: Final = 60.0  # the end of a program that is slow to end, and its sync
_LAST: Final = 300
_MOST_OUTPUT: Final = 65536
_PREPARING_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class CommandWork:
    """One run of a user's command. `contents` are the plan's files by their SHA-256."""

    entry: Planned
    workload: TimedWorkload | CrashWorkload | HeldWorkload
    command: OwnCommand
    contents: Mapping[str, bytes]

    def measure(self, measurer: Measurer) -> WorkFacts:
        """Raises LabError when the board does not answer. The evidence has the program's errors."""
        return measurer.around(self.entry, lambda kind: self._measure(measurer, kind))

    def _measure(self, measurer: Measurer, kind: Filesystem) -> WorkFacts:
        shell, command = measurer.shell, self.command
        if kind.raw:
            raise MeasurementInvalid("command", ["a command needs a filesystem: raw is a device without one"])
        with measurer.phases("provisioning"):
            self.put_files(measurer)
            directory, steps = provisioning(measurer.scratch, kind, self.entry.provision)
            perform(shell, steps)
            for argv in command.prepare:
                self.prepare(measurer, argv, self.words(directory, argv, sync=False))
            forgetting = measurer.scratch.forgetting(kind) if self.entry.provision is Provision.SCRATCH else []
            checked(shell, "rm", "-f", _OUTPUT)
            measurer.settle(forgetting)
        limit = ("timeout", "-s", "KILL", f"{command.limit_s:g}")
        argv = self.words(directory, command.argv, sync=command.sync, limit=limit)
        evidence, done = measurer.timed(measurer.numbered(self.entry), argv, time_limit_s=command.limit_s + _MARGIN_S)
        with measurer.phases("reading"):
            said = self.output(measurer)
        evidence.attachments["output.txt"] = said
        output = said.decode(errors="replace")
        if done.exit_code:
            evidence.complaints.insert(0, self._failure(done.exit_code, evidence.duration_s, f"{output}{done.stdout}"))
            return evidence
        try:
            evidence.moved_bytes = self._moved_bytes(output)
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
        return evidence

    @staticmethod
    def prepare(measurer: Measurer, argv: tuple[str, ...], words: tuple[str, ...]) -> None:
        """Run `argv`, as `words` has it. Raises MeasurementInvalid with the program's own words."""
        done = measurer.shell.run(words, timeout_s=_PREPARING_S)
        if done.exit_code:
            said = CommandWork.output(measurer).decode(errors="replace").strip()[-_LAST:]
            what = f"`{' '.join(argv)}` ended with exit code {done.exit_code}: {said}"
            raise MeasurementInvalid("prepare", [what])

    @staticmethod
    def output(measurer: Measurer) -> bytes:
        """The last 64 KiB that the program printed: a console carries a few KiB a second."""
        last = f"[ $(wc -c < {_OUTPUT}) -le {_MOST_OUTPUT} ] || {{ tail -c {_MOST_OUTPUT} {_OUTPUT} > {_OUTPUT}-end"
        checked(measurer.shell, "sh", "-c", f"{last} && mv {_OUTPUT}-end {_OUTPUT}; }}")
        return measurer.shell.get_all((_OUTPUT,))[0]

    def put_files(self, measurer: Measurer) -> None:
        """Put the command's files onto the board, unless this boot has them."""
        for name, digest in self.command.files:
            place = f"{_FOLDER}/{digest[:16]}/{name}"
            content = self.contents.get(digest, b"")
            if hashlib.sha256(content).hexdigest() != digest:
                raise MeasurementInvalid("files", [f"the run does not have the file {name} that the command needs"])
            if measurer.shell.run(("test", "-x", place)).exit_code:
                checked(measurer.shell, "mkdir", "-p", place.rpartition("/")[0])
                measurer.shell.put(place, content)
                checked(measurer.shell, "chmod", "+x", place)

    def words(
        self, directory: str, argv: tuple[str, ...], *, sync: bool, limit: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """The program in the directory under test, with what stands for something in its arguments."""
        size = self.workload.size_bytes
        values = {"directory": directory, "size_kib": str(size // KIB), "size_mib": str(max(1, size // MIB))}
        files = {f"./{name}": f"{_FOLDER}/{digest[:16]}/{name}" for name, digest in self.command.files}
        words = [re.sub(r"\{([a-z_]+)\}", lambda found: values[found[1]], files.get(word, word)) for word in argv]
        return ("sh", "-c", _RUN + (_SYNCED if sync else ""), "sh", *limit, *_INSIDE, directory, *words)

    def _failure(self, exit_code: int, duration_s: float | None, output: str) -> str:
        shown, said = " ".join(self.command.argv), output.strip()[-_LAST:]
        if (duration_s or 0.0) >= self.command.limit_s:
            return f"`{shown}` took longer than its limit of {self.command.limit_s:g} s, and was ended: {said}"
        return f"`{shown}` ended with exit code {exit_code}: {said}"

    def _moved_bytes(self, output: str) -> int:
        """What the program moved. Raises MeasurementInvalid if it was to print that, and did not."""
        if not self.command.moved:
            return self.command.moved_bytes
        told = re.search(self.command.moved, output)
        if told is None or not re.fullmatch(r"\d{1,15}", told[1] or "") or not int(told[1]):
            what = f"it printed no number of bytes that matches {self.command.moved!r}: {output.strip()[-_LAST:]}"
            raise MeasurementInvalid("moved", [what])
        return int(told[1])
