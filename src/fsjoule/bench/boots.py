"""The boots of a run's board: which one counts for an entry, the work of each, and its console's transcript."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from fsjoule.bench.aged import AgedImages, Place
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.phases import Phases
from fsjoule.bench.profiles import keep_symbols
from fsjoule.errors import FsjouleError, MeterError, also
from fsjoule.model import CARD, AgeFacts, BoardProfile, Planned, Provision
from fsjoule.ports import Board, Clock, Command, CommandResult, Meter, Profiler, ResultStore, Shell
from fsjoule.suites import SCRATCH_ROOT, boot_seed, repetition_seed

_log: Final = logging.getLogger(__name__)

# The outlet's relay, and the rest in the board's capacitors; then a short look.
_SETTLE_S: Final = 0.5
_OFF_S: Final = 0.3
_AGEING_SEED: Final = 1
# Repetition, kernel, provision, root filesystem.
BootKey = tuple[int, str, Provision, str]


@dataclass
class Transcript:
    """A Shell that writes commands and output down."""

    shell: Shell
    text: str = ""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        self.text += f"# {shlex.join(argv)}\n"
        result = self.shell.run(argv, timeout_s=timeout_s)
        self._answered(result)
        return result

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        try:
            results = self.shell.run_all(commands)
        except BaseException:
            self.text += "".join(f"# {shlex.join(command.argv)}\n" for command in commands)
            raise
        for result in results:
            self.text += f"# {shlex.join(result.argv)}\n"
            self._answered(result)
        return results

    def start(self, argv: Sequence[str]) -> None:
        self.text += f"# {shlex.join(argv)} &\n"
        self.shell.start(argv)

    def put(self, path: str, content: bytes) -> None:
        self.text += f"# {len(content)} bytes written to {path}\n"
        self.shell.put(path, content)

    def get(self, path: str) -> bytes:
        content = self.shell.get(path)
        self.text += f"# {len(content)} bytes read from {path}\n"
        return content

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        contents = self.shell.get_all(paths)
        for path, content in zip(paths, contents, strict=True):
            self.text += f"# {len(content)} bytes read from {path}\n"
        return contents

    def _answered(self, result: CommandResult) -> None:
        self.text += result.stdout + (f"\n[exit code {result.exit_code}]" if result.exit_code else "") + "\n"

    def take(self) -> bytes:
        """The text since the last call."""
        text, self.text = self.text, ""
        return text.encode()


@dataclass
class CurrentBoot:
    """One boot of the board: its number, its kernel and its root filesystem."""

    number: int
    repetition: int
    kernel: str
    provision: Provision
    root_filesystem: str
    transcript: Transcript
    measurer: Measurer


@dataclass
class Boots:
    """The board is off or in its `current` boot; `count` boots have begun, those of a resumed run too.

    `entries` are the plan's. With a `profiler` or `sampled` the symbols of each boot are kept. `off_w`: what the meter
    read before the first one, in W.
    """

    board: Board
    meter: Meter
    store: ResultStore
    clock: Clock
    profile: BoardProfile
    profiler: Profiler | None
    seed: int
    phases: Phases
    count: int
    sampled: bool = False
    traced: bool = False
    counted: bool = False
    entries: Sequence[Planned] = ()
    off_w: float | None = field(default=None, init=False)
    current: CurrentBoot | None = field(default=None, init=False)
    _images: AgedImages | None = field(init=False)
    _on_since_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._images = AgedImages(self.board, self.profile) if self.profile.guest_time else None

    def boot_for(self, entry: Planned) -> CurrentBoot:
        """The current boot if the entry can be measured in it, otherwise a new one."""
        key, booted = boot_key(entry), self.current
        there = booted and (booted.repetition, booted.kernel, booted.provision, booted.root_filesystem)
        if booted and there == key and not booted.measurer.damaged:
            return booted
        self.prepare(entry)
        return self.boot(entry)

    def prepare(self, entry: Planned) -> None:
        """End the current boot, and write the card of the entry's next one. Make its aged filesystems if need be."""
        self.keep_symbols()
        self.end()
        with self.phases("flash"):
            self.board.prepare(entry.kernel, _root_filesystem(entry))
            if self.off_w is None and self._is_wired:
                self.clock.sleep(_SETTLE_S)
                with suppress(MeterError):  # its silence is told with the first measurement
                    self.meter.arm()
                    self.clock.sleep(_OFF_S)
                    watts = self.meter.disarm().power_w
                    self.off_w = float(watts.mean()) if len(watts) else None

        if self._images is not None:
            for each in (entry, *self.entries):
                kind = Measurer.kind_of(each)
                if kind.age and each.storage == CARD and boot_key(each) == boot_key(entry):
                    self._images.make(kind, partial(self._aged, each))

    @contextmanager
    def _aged(self, entry: Planned) -> Generator[tuple[Place, AgeFacts]]:
        """Age an entry's filesystem, in a boot that is the same in every run; the body finds it on the card."""
        _log.info("%s: its use is replayed once, in a boot of its own, and kept", entry.filesystem)
        with self.phases("ageing"):
            try:
                yield self._measurer(self.board.boot(_AGEING_SEED), _AGEING_SEED).aged(entry)
            except BaseException as error:
                with also(error, "switching the board off"):
                    self.board.off()
                raise
            self.board.off()

    def boot(self, entry: Planned) -> CurrentBoot:
        with self.phases("boot"):
            self._on_since_s = self.clock.now_s()
            if self.profiler is not None:
                self.profiler.count_next()
            shell = Transcript(self.board.boot(boot_seed(self.seed, entry, _root_filesystem(entry))))
            self.count += 1
            measurer = self._measurer(shell, repetition_seed(self.seed, entry.repetition))
            root = _root_filesystem(entry)
            self.current = CurrentBoot(
                self.count, entry.repetition, entry.kernel, entry.provision, root, shell, measurer
            )
        return self.current

    def _measurer(self, shell: Shell, seed: int) -> Measurer:
        return Measurer(
            shell=shell,
            meter=self.meter,
            clock=self.clock,
            profile=self.profile,
            seed=seed,
            phases=self.phases,
            sampled=self.sampled,
            traced=self.traced,
            counted=self.counted,
            images=self._images,
        )

    def rest(self, seconds: float) -> None:
        """Let time pass on the board, or on the host if no board is booted."""
        if self.current is not None:
            self.current.measurer.rest(seconds)
        else:
            self.clock.sleep(seconds)

    @property
    def _is_wired(self) -> bool:
        """Whether somebody has put a meter into the board's supply, which may be another board's."""
        profile = self.profile
        return not (profile.simulated or profile.guest_time or profile.mark_line.is_counter)

    def keep_symbols(self) -> None:
        if (self.sampled or self.profiler is not None) and self.current is not None:
            with self.phases("symbols"):
                keep_symbols(self.current.transcript, self.current.number, self.store)

    def end_or_log(self) -> None:
        try:
            self.end()
        except FsjouleError as error:
            _log.info("the board could not be switched off: %s", error.what)

    def end(self) -> None:
        booted, self.current = self.current, None
        if booted is not None:
            booted.measurer.emmcs.restore()
        self.board.off()
        if self._on_since_s is not None:
            self.phases.add("board_on", self.clock.now_s() - self._on_since_s)
            self._on_since_s = None


def boot_key(entry: Planned) -> BootKey:
    """Entries with one key are measured in one boot."""
    return entry.repetition, entry.kernel, entry.provision, _root_filesystem(entry)


def _root_filesystem(entry: Planned) -> str:
    return entry.filesystem if entry.provision is Provision.ROOT else SCRATCH_ROOT
