"""Fakes of the ports, for tests of code that uses them. Nothing else in fsjoule may be faked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate, islice, pairwise
from pathlib import Path

from fsjoule.errors import BoardError, ConfigError, LabError, MeterError, Part, PlaceLostError
from fsjoule.model import BoardFacts, ImageFacts, Measurement, MeterInfo, Profile, Run, Trace
from fsjoule.model.bisection import BuiltKernel, KernelBoot, NoKernel, WantedKernel
from fsjoule.model.power_on import PowerOn
from fsjoule.ports import Command, CommandResult, Cut, LikelyBoots, one_by_one


@dataclass
class FakeClock:
    """Time that passes only by sleeping."""

    time_s: float = 0.0
    busy: float = 0.0

    def now_s(self) -> float:
        return self.time_s

    def utc(self) -> str:
        return f"{datetime.fromtimestamp(self.time_s, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds

    def load(self) -> tuple[float, int]:
        return self.busy, 2


@dataclass
class FakeHealth:
    """Gives these answers one after the other, and the last one again and again."""

    answers: list[tuple[str, ...]]

    def faults(self, part: Part | None = None) -> tuple[str, ...]:  # noqa: ARG002
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class FakeShell:
    """A shell that answers each program through `answer`, and remembers the programs."""

    answer: Callable[[tuple[str, ...]], CommandResult]
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    started: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        del timeout_s
        self.asked.append(tuple(argv))
        return self.answer(tuple(argv))

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        return one_by_one(self, commands)

    def start(self, argv: Sequence[str]) -> None:
        self.started.append(tuple(argv))

    def put(self, path: str, content: bytes) -> None:
        self.files[path] = content

    def get(self, path: str) -> bytes:
        return self.files[path]

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        return tuple(self.get(path) if path in self.files else b"" for path in paths)


@dataclass
class FakeMeter:
    """A meter that always returns the same trace, or the one that `now` gives, and is silent without one."""

    trace: Trace | None = None
    now: Callable[[], Trace | None] | None = None

    def info(self) -> MeterInfo:
        return self._trace().info

    def arm(self) -> None:
        self._trace()

    def disarm(self) -> Trace:
        return self._trace()

    def _trace(self) -> Trace:
        trace = self.trace if self.now is None else self.now()
        if trace is None:
            raise MeterError("the meter has been silent for 2 s")
        return trace


@dataclass
class FakeProfiler:
    """Gives the same profile for each window, or none, and remembers how many power-ons it was to count."""

    profile: Profile | None = None
    counted: int = 0
    windows: list[str] = field(default_factory=list[str])

    def count_next(self) -> None:
        self.counted += 1

    def take(self, window: str) -> Profile | None:
        self.windows.append(window)
        return self.profile


@dataclass
class FakeStore:
    runs: list[Run] = field(default_factory=list[Run])
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    attachments: dict[int, dict[str, bytes]] = field(default_factory=dict[int, dict[str, bytes]])
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def begin(self, run: Run) -> None:
        self.runs.append(run)

    def update(self, run: Run) -> None:
        self.runs.append(run)

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        del trace
        self.measurements.append(measurement)
        self.attachments[measurement.number] = attachments

    def withdraw(self, numbers: Collection[int]) -> None:
        self.measurements = [each for each in self.measurements if each.number not in numbers]

    def keep(self, name: str, content: bytes) -> None:
        self.kept[name] = content

    def take(self, name: str) -> bytes | None:
        return self.kept.pop(name, None)

    def finish(self, run: Run) -> None:
        self.runs.append(run)


@dataclass
class FakeBoard:
    """Boots into `shell`, or raises the next of `faults`; a cut returns `said`. Setting `lost` takes it away.

    `card` is its card's file, `told` what its console has said since power-on. It is ports.BoardParts, too: `outlet` is
    what its outlet says (by default the truth), `reached` what its flasher finds or raises.
    """

    shell: FakeShell
    board_facts: BoardFacts
    image_facts: ImageFacts
    faults: list[BoardError] = field(default_factory=list[BoardError])
    prepared: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    seeds: list[int] = field(default_factory=list[int])
    card: Path | None = None
    said: Callable[[], str] = lambda: ""
    cuts: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    boots: int = 0
    powered: bool = False
    lost: LabError | None = None
    outlet: Callable[[], bool | None] | None = None
    reached: str | LabError = ""
    boot_limit_s: float = 100.0
    told: PowerOn = field(default_factory=lambda: PowerOn(0.0, 0.0, ()))

    def power_on(self) -> None:
        self.powered = True

    def has_power(self) -> bool | None:
        return self.powered if self.outlet is None else self.outlet()

    def reach_card(self) -> str:
        if isinstance(self.reached, LabError):
            raise self.reached
        return self.reached

    def prepare(self, kernel: str, root_filesystem: str) -> None:
        self.prepared.append((kernel, root_filesystem))

    def boot(self, seed: int = 1) -> FakeShell:
        self.boots += 1
        self.seeds.append(seed)
        if self.faults:
            raise self.faults.pop(0)
        self.powered = True
        return self.shell

    def cut(self, after_s: float, seed: int) -> Cut:
        self.cuts.append((after_s, seed))
        self.powered = False
        return Cut(self.said(), ())

    def check_ours(self) -> None:
        if self.lost is not None:
            raise self.lost

    def card_file(self) -> Path | None:
        return self.card

    def since_power_on(self) -> PowerOn:
        return self.told

    def card_image(self) -> Path:
        if self.card is None:
            raise ConfigError("no card image was chosen yet")
        return self.card

    def put_card(self, content: Path) -> None:
        self.card = content

    def record_writes(self) -> Path | None:
        return None

    def off(self) -> None:
        if isinstance(self.lost, PlaceLostError):
            raise self.lost
        self.powered = False

    def facts(self) -> BoardFacts:
        return self.board_facts

    def image(self) -> ImageFacts:
        kernel, root = self.prepared[-1]
        return replace(self.image_facts, kernel_choice=kernel, root_filesystem=root)


@dataclass
class FakeKernelBuilds:
    """Kernels of commits, whose folder and image are named after the commit; `images` has shared images.

    `broken` are commits that do not build.
    """

    images: dict[str, str] = field(default_factory=dict[str, str])
    broken: frozenset[str] = frozenset()
    expected: list[tuple[WantedKernel, ...]] = field(default_factory=list[tuple[WantedKernel, ...]])
    taken: list[WantedKernel] = field(default_factory=list[WantedKernel])

    def expect(self, wanted: Sequence[WantedKernel]) -> None:
        self.expected.append(tuple(wanted))

    def built(self, wanted: WantedKernel) -> BuiltKernel | None:
        return None if wanted.commit in self.broken else self._built(wanted)

    def take(self, wanted: WantedKernel) -> BuiltKernel | NoKernel:
        self.taken.append(wanted)
        return self.built(wanted) or NoKernel("drivers/a.c:1: error: expected ';'")

    def _built(self, wanted: WantedKernel) -> BuiltKernel:
        name = "-".join([wanted.commit, *filter(None, [wanted.without, "aligned" * wanted.aligned])])
        return BuiltKernel(Path(name), self.images.get(name, name), seconds=1.0)

    def pools(self, commits: Sequence[str]) -> tuple[int, ...]:
        images = [self.images.get(commit, commit) for commit in commits]
        return tuple(accumulate((one != two for one, two in pairwise(images)), initial=0))


@dataclass
class FakeKernelBoots:
    """A board on which a kernel has the figures that `figures` gives for its folder's name and the boot's seed.

    `unfit` are folders whose kernels do not boot; `faults` are raised by the boots to come, None for a good one.
    `profiled` are the run folders of profiled boots, `absent` the figures that the board does not give, and why;
    `steps` are the shares by which its clock rounds figures. Of `boards`, the free ones boot ahead; `rounds` has what
    all of them booted at once, what was asked for first.
    """

    figures: Callable[[str, int], dict[str, float | None]]
    unfit: frozenset[str] = frozenset()
    faults: list[Exception | None] = field(default_factory=list[Exception | None])
    booted: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    profiled: dict[str, Path] = field(default_factory=dict[str, Path])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    board: str = ""
    steps: dict[str, float] = field(default_factory=dict[str, float])
    boards: int = 1
    rounds: list[list[tuple[str, int]]] = field(default_factory=list[list[tuple[str, int]]])
    _likely: LikelyBoots = field(default_factory=lambda: lambda _: (), init=False)

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        self._boot((kernel.name, seed))
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        self.booted.append((kernel.name, seed))
        run = f"run{len(self.booted)}"
        if profiled:
            return KernelBoot(run, self.profiled[kernel.name], 1.0, {})
        if kernel.name in self.unfit:
            return KernelBoot(run, Path(run), 1.0, {}, unfit="Kernel panic", booted=False)
        figures = self.figures(kernel.name, seed) | dict.fromkeys(self.absent)
        return KernelBoot(run, Path(run), 1.0, figures, absent=self.absent, board=self.board, steps=self.steps)

    def expect(self, likely: LikelyBoots) -> None:
        self._likely = likely

    def _boot(self, wanted: tuple[str, int]) -> None:
        """Let all boards boot once unless the boot is there already."""
        if any(wanted in boots for boots in self.rounds):
            return
        likely = ((kernel.name, seed) for kernel, seed in self._likely(self._made_ahead))
        made = {boot for boots in self.rounds for boot in boots}
        free = islice((boot for boot in likely if boot not in {wanted, *made}), self.boards - 1)
        self.rounds.append([wanted, *free])

    def _made_ahead(self, kernel: Path, seed: int) -> KernelBoot | None:
        made = any((kernel.name, seed) in boots for boots in self.rounds)
        return KernelBoot("", Path(), 1.0, self.figures(kernel.name, seed)) if made else None

    def give_up(self, why: str) -> bool:
        del why
        return False
