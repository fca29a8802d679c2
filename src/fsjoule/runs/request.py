"""A user's request for a run: options with every name checked, and each filesystem at each age that is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Final

from _pytest.mark.expression import Expression

from fsjoule import lab
from fsjoule.errors import ConfigError, ResultError
from fsjoule.filesystems import filesystem, modules_of, named_filesystems
from fsjoule.kernels import check_kernel
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.layers import named_stacks, named_storages
from fsjoule.model import (
    DEFAULT_RECIPE,
    BoardProfile,
    CrashWorkload,
    FioWorkload,
    Measurement,
    Provision,
    RunStatus,
    TimedWorkload,
)
from fsjoule.model.age import DEFAULT_FILL, NEW, Age, days_of
from fsjoule.model.crash import check_state_name
from fsjoule.model.filesystem import file_name
from fsjoule.model.labels import counted, listed
from fsjoule.model.layer import NO_LAYERS, stack_of
from fsjoule.runs.held_lab import check_room
from fsjoule.runs.options import (
    DEFAULT_KERNEL,
    DEFAULT_RESULTS,
    DEFAULT_SUITE,
    UNTIL_DECIDED,
    BenchOptions,
    boards_at_once,
)
from fsjoule.runs.resume import Resumed, resume
from fsjoule.statistics.superiority import SuperiorityRule
from fsjoule.suites import Suite, suite, suite_of
from fsjoule.suites.ageing import MOST_TURNS, turns, usage_of
from fsjoule.suites.profile import profile_names
from fsjoule.verdicts.filesystems import rule_of

# Each repetition is a boot: this many take at least a day. A policy's budget has the same limit.
_MOST_REPETITIONS: Final = 1000
# A week or two. Reading has a limit, and run.json takes half a KiB per measurement.
MOST_MEASUREMENTS: Final = 20_000
# Each has a process here, even if its place is elsewhere.
_MOST_BOARDS: Final = 100_000
# What run.json can keep.
_LARGEST_SEED: Final = 2**63 - 1
_COUNTING_HINT: Final = (
    "take a board in guest time (env/deterministic.yaml), or `fsjoule explain A B`, which takes samples"
)
# The emulator tells the pages of programs from the kernel by a 32-bit address.
_COUNTED: Final = "armhf"
_AGE: Final = "age"
_MOST_FILL: Final = 95
_LARGEST_AGE_SEED: Final = 999_999_999


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The user's request, every name checked.

    With `paired` the two kernels, baseline and candidate, boot in turn (ABBA), `repeat` times each. `provision` and
    `storages` are None if the suite decides, `size_factor` if the environment file decides. With `resumed` the plan is
    that run's. With `profiled` each measurement has a profile. With `sampled` it is nothing else (perf makes it on the
    board), and with `traced` the kernel's events: its figures do not count. `workloads` are the slugs to measure, None
    for all. `boards` is how many boards boot at once. With `until_decided` `repeat` is the most repetitions that there
    may be. `stacks` are layers above the storage devices; without any there are none.
    """

    suite: Suite
    filesystems: tuple[str, ...]
    kernels: tuple[str, ...]
    repeat: int
    provision: Provision | None
    results: Path
    seed: int
    meter_program: Path | None = None
    paired: bool = False
    size_factor: float | None = None
    storages: tuple[str, ...] | None = None
    resumed: Resumed | None = None
    profiled: bool = False
    sampled: bool = False
    traced: bool = False
    workloads: tuple[str, ...] | None = None
    states: tuple[str, ...] = ()
    boards: int = 1
    until_decided: bool = False
    stacks: tuple[str, ...] = ()

    @property
    def pooled(self) -> bool:
        """Whether several boards boot at once."""
        return self.boards > 1

    @property
    def kept(self) -> tuple[Measurement, ...]:
        """The measurements of a resumed run so far."""
        return () if self.resumed is None else self.resumed.kept

    def factor_for(self, name: str, profile: BoardProfile) -> float:
        """The factor for the sizes of a published suite or part on a board; that of a resumed run."""
        if self.resumed is not None:
            return self.resumed.run.plan.size_factors.get(name, 1.0)
        return profile.factor_for(name) if self.size_factor is None else self.size_factor


def choose(
    options: BenchOptions,
    environment: lab.EnvironmentFile | None = None,
    *,
    pair: tuple[str, str] | None = None,
    select: str | None = None,
) -> RunRequest:
    """Check the options; a `pair` of kernels are the sides of a comparison, which may be equal.

    Filesystems default to the suite's. Without a number there are as many repetitions as two or more filesystems need,
    and the suite's number for a single one; with a size factor of 1 it is the published number. The environment's board
    decides which kernels exist; the default is the usual virtual board. `select` (-k) leaves out the workloads of which
    no measurement's name matches.
    Raises ConfigError, which lists the choices for an unknown name; ResultError if a run cannot be resumed.
    """
    if options.resume is not None:
        return _choose_resumed(options.resume, options, environment)
    chosen = suite(options.suite or DEFAULT_SUITE)
    if chosen.file and options.factor is not None:
        chosen = replace(chosen, scales=True)
    names = aged_filesystems(named_filesystems(chosen.filesystems if options.fs is None else options.fs), options)
    if not names:
        raise ConfigError("--fs names no filesystem", hint="for example --fs ext4,btrfs")
    kernel_names = pair or listed(options.kernel or DEFAULT_KERNEL, option="--kernel")
    if not kernel_names:
        raise ConfigError("--kernel names no kernel", hint="for example --kernel 6.1,6.12")
    recipe = DEFAULT_RECIPE if environment is None else environment.profile.recipe
    modules = modules_of(names)
    for kernel in kernel_names:
        check_kernel(kernel, recipe, modules)
    number, until_decided = _repetitions(chosen, options, names, environment)
    provision, factor, seed = options.provision, options.factor, options.seed
    if provision not in {None, *(p.value for p in Provision)}:
        raise ConfigError.unknown("way to provision", str(provision), [p.value for p in Provision])
    if factor is not None and not 0 < factor <= 1:
        raise ConfigError(
            f"--size-factor {factor:g}: it must be above 0 and at most 1",
            hint="1, or --full, is the published sizes",
        )
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise ConfigError(f"--seed {seed}: it is out of range", hint=f"choose 0 to {_LARGEST_SEED}")
    storages, stacks = _storages_and_stacks(options)
    return RunRequest(
        chosen,
        names,
        kernel_names,
        number,
        None if provision is None else Provision(provision),
        options.results or Path(DEFAULT_RESULTS),
        secrets.randbits(32) if seed is None else seed,
        options.meter_program,
        paired=pair is not None,
        size_factor=factor,
        storages=storages,
        profiled=options.profile,
        workloads=_workloads(chosen, names, options.workload, select),
        states=_states(chosen, options.states),
        boards=check_boards(_boards(options, chosen, environment, paired=pair is not None), environment),
        until_decided=until_decided,
        stacks=stacks,
    )


def _states(chosen: Suite, states: str | None) -> tuple[str, ...]:
    """The crash states to check, all of them if none is named. Raises ConfigError."""
    if states is None:
        return ()
    if not any(isinstance(each, CrashWorkload) for part in chosen.leaves for each in part.workloads):
        raise ConfigError(f"--states: suite {chosen.name!r} checks no crash states", hint="add --suite crash-states")
    names = tuple(dict.fromkeys(states.split()))
    for name in names or ("",):
        check_state_name(name)
    return names


def _storages_and_stacks(options: BenchOptions) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The storage devices, None if the suite decides, and the layers above each. Raises ConfigError."""
    storages = None if options.storage is None else named_storages(options.storage)
    if storages == ():
        raise ConfigError("--storage names no storage device", hint="for example --storage card")
    stacks = named_stacks(options.stack)
    if stacks and (above := next(filter(stack_of, storages or ()), None)):
        raise ConfigError(f"--storage {above} has layers, and --stack names more", hint="name them in one of the two")
    return storages, stacks


def _boards(options: BenchOptions, chosen: Suite, environment: lab.EnvironmentFile | None, *, paired: bool) -> int:
    """How many boards boot at once. Of pairs both sides do, in guest time, where nobody says how many."""
    if options.boards is not None:
        return options.boards
    if not paired or environment is None or not lab.wants_virtual_lab(environment) or environment.wanted.reserves:
        return 1
    if not environment.profile.guest_time or any(w.cuts_power for part in chosen.leaves for w in part.workloads):
        return 1
    boards = boards_at_once()
    try:
        check_room(environment, boards)
    except ConfigError:
        return 1
    return boards


def _workloads(
    chosen: Suite, filesystems: tuple[str, ...], workload: str | None, select: str | None
) -> tuple[str, ...] | None:
    """The slugs of the workloads to measure, None for all. Raises ConfigError."""
    if select is not None:
        return selected_workloads(chosen, filesystems, select)
    return None if workload is None else workloads_of(chosen, workload)


def _repetitions(
    chosen: Suite, options: BenchOptions, filesystems: tuple[str, ...], environment: lab.EnvironmentFile | None
) -> tuple[int, bool]:
    """How many repetitions, and whether fewer may do. Raises ConfigError for an impossible number."""
    published, repeat = options.factor == 1.0, options.repeat
    rivals = len(filesystems) > 1 and any(_judged(chosen))
    if rivals and (repeat == UNTIL_DECIDED or (repeat is None and not published)):
        return _most(chosen, environment), True
    if repeat is None or isinstance(repeat, str):
        return max(chosen.repeat, chosen.published_repeat) if published else chosen.repeat, False
    if repeat > _MOST_REPETITIONS:
        raise ConfigError(
            f"{repeat} repetitions are too many: each is a boot", hint=f"choose at most {_MOST_REPETITIONS}"
        )
    if repeat < 1:
        raise ConfigError(f"--repeat {repeat}: at least one repetition is needed", hint="for example --repeat 3")
    return repeat, False


def _most(chosen: Suite, environment: lab.EnvironmentFile | None) -> int:
    """The most repetitions of a run that goes on until its statements are decided."""
    rule = rule_of(guest_time=environment is not None and environment.profile.guest_time)
    return max(rule.most_boots, least_boots(chosen, rule))


def check_boards(boards: int, environment: lab.EnvironmentFile | None) -> int:
    """The number of boards that boot at once. Raises ConfigError if the environment's boards cannot, or do not fit.

    Boards in real time are places of a pool: each has its meter and its level.
    """
    if boards < 1:
        raise ConfigError(f"--boards {boards}: at least one board is needed", hint="for example --boards 2")
    if boards > _MOST_BOARDS:
        raise ConfigError(f"--boards {boards}: it is out of range", hint=f"choose at most {_MOST_BOARDS}")
    if boards == 1:
        return 1
    if environment is None:
        raise ConfigError(f"--boards {boards}: no environment file names a board", hint="--lg-env FILE")
    if lab.wants_virtual_lab(environment) and not environment.profile.guest_time:
        raise ConfigError(
            f"--boards {boards}: only boards in guest time are brought up for a run: they have the figures of one",
            hint="--lg-env env/deterministic.yaml; or boards of a lab that is up, with LG_COORDINATOR and --place-tag",
        )
    if not lab.wants_virtual_lab(environment):
        if environment.wanted.tags:
            return boards  # places of a pool
        raise ConfigError(
            f"--boards {boards}: a coordinator is given, but no pool of its places",
            hint="--place-tag KEY=VALUE takes them from a pool; without LG_COORDINATOR each board gets a virtual lab",
        )
    if environment.wanted.reserves:
        raise ConfigError(
            f"--boards {boards}: it brings up a lab for each board, and waits for nobody's place",
            hint="leave out --place-tag, --wait and --priority, or set LG_COORDINATOR",
        )
    check_room(environment, boards)
    return boards


def workloads_of(suite: Suite, names: str) -> tuple[str, ...]:
    """The slugs of the workloads (a list with commas) that are called so or do that: `read-16k`, `read`.

    Raises ConfigError for an unknown one.
    """
    known = list(chain.from_iterable(part.workloads for part in suite.leaves))
    slugs: dict[str, None] = {}
    for name in listed(names):
        here = [each.slug for each in known if name in (each.slug, each.operation.value)]
        if not here:
            raise ConfigError.unknown(f"workload of suite {suite.name!r}", name, [each.slug for each in known])
        slugs |= dict.fromkeys(here)
    if not slugs:
        raise ConfigError("--workload names no workload", hint=f"for example --workload {known[0].slug}")
    return tuple(slugs)


def selected_workloads(suite: Suite, filesystems: Iterable[str], select: str) -> tuple[str, ...]:
    """The slugs of the workloads that `-k` chooses on one of these filesystems. Raises ConfigError for none."""
    matches = matching(select)
    slugs = dict.fromkeys(each.slug for part in suite.leaves for each in part.workloads)
    names = [(slug, f"{file_name(each)}-{slug}") for slug in slugs for each in filesystems]
    chosen = dict.fromkeys(slug for slug, name in names if matches(name))
    if not chosen:
        hint = f"it has {', '.join(name for _, name in names)}"
        raise ConfigError(f"-k {select}: no measurement of suite {suite.name!r} has a name that matches", hint=hint)
    return tuple(chosen)


def _choose_resumed(path: Path, options: BenchOptions, environment: lab.EnvironmentFile | None) -> RunRequest:
    """The request of a run that goes on. Of the other options only `--repeat` changes it.

    Raises ResultError if the run cannot be resumed, ConfigError for an option that contradicts it.
    """
    repeat, boards = options.repeat, check_boards(options.boards or 1, environment)
    resumed = resume(path, finished=repeat is not None)
    resumed.check_options(
        {
            "--suite": options.suite,
            "--fs": filesystems_again(options),
            "--kernel": None if options.kernel is None else listed(options.kernel),
            "--seed": options.seed,
            "--storage": None if options.storage is None else tuple(sorted(named_storages(options.storage))),
            "--stack": tuple(sorted(each or NO_LAYERS for each in named_stacks(options.stack))) or None,
            "--results": options.results and options.results.resolve(),
            "--size-factor": options.factor,
            "--provision": options.provision,
        }
    )
    plan = resumed.run.plan
    chosen, until_decided = suite_of(plan), plan.until_decided if repeat is None else repeat == UNTIL_DECIDED
    most = max(plan.repeat, _most(chosen, environment)) if until_decided else plan.repeat
    number = repeat if isinstance(repeat, int) else most
    if resumed.run.status is RunStatus.COMPLETE and number <= plan.repeat and not until_decided:
        raise ResultError(
            f"{resumed.path} is complete: it has {counted(plan.repeat, 'repetition')}",
            hint=f"--repeat {plan.repeat + 1} or more adds boots",
        )
    if number < resumed.begun or number > _MOST_REPETITIONS:
        raise ConfigError(
            f"--repeat {number}: {path} has measurements of {counted(resumed.begun, 'repetition')} already",
            hint=f"choose {resumed.begun} to {_MOST_REPETITIONS}",
        )
    return RunRequest(
        chosen,
        plan.filesystems,
        resumed.kernels,
        number,
        provision=resumed.provision,
        results=resumed.path.parent,
        seed=plan.seed,
        meter_program=options.meter_program,
        resumed=resumed,
        profiled=options.profile,
        boards=boards,
        until_decided=until_decided,
    )


def matching(select: str | None) -> Callable[[str], bool]:
    """Whether a name matches `ext4 and not (rand or mkfs)`: its words are parts of names. Without one all names do.

    Raises ConfigError for a wrong expression.
    """
    if not select:
        return lambda _name: True
    try:
        expression = Expression.compile(select)
    except SyntaxError as error:
        hint = "words with and, or, not and parentheses: -k 'ext4 and not rand'"
        raise ConfigError(f"-k {select!r}: {error.msg}", hint=hint) from error

    def matches(name: str) -> bool:
        def is_part(word: str, /, **_more: object) -> bool:
            return word.lower() in name.lower()

        return expression.evaluate(is_part)

    return matches


def least_boots(suite: Suite, rule: SuperiorityRule) -> int:
    """The repetitions before anything is decided. What a suite counts (files lost) needs as many as the suite says."""
    return rule.least_boots if all(_judged(suite)) else suite.repeat


def _judged(suite: Suite) -> Iterator[bool]:
    """For each workload: whether it has figures by which filesystems are judged. Crash states are only counted."""
    return (isinstance(each, FioWorkload | TimedWorkload) for part in suite.leaves for each in part.workloads)


def check_profiled(environment: lab.EnvironmentFile) -> None:
    """Raises ConfigError for a board whose instructions cannot be counted."""
    if why := _why_not_counted(environment):
        raise ConfigError(why, hint=_COUNTING_HINT)


def with_profiles(request: RunRequest, environment: lab.EnvironmentFile) -> RunRequest:
    """The request with profiles: exact if the board's instructions can be counted, or else samples.

    The figures of sampled boots do not count.
    """
    exact = not _why_not_counted(environment)
    return replace(request, profiled=exact, sampled=not exact)


def _why_not_counted(environment: lab.EnvironmentFile) -> str:
    """Why no profile can be kept with what the board measures; empty if one can."""
    profile = environment.profile
    if not profile.guest_time:
        return f"the board {profile.name} is not in guest time: no profile can be kept with what it measures"
    architecture = load_recipe(recipes_folder(), profile.recipe).architecture
    if architecture != _COUNTED:
        return f"the board {profile.name} is {architecture}: instructions can be counted on 32-bit ARM only"
    return ""


def aged_filesystems(names: Iterable[str], options: BenchOptions) -> tuple[str, ...]:
    """The filesystems at the ages of `--age`. Raises ConfigError for a wrong age or profile, also of a name's own."""
    names = tuple(names)
    ages = _ages(options)
    if ages != (None,) and (already := [name for name in names if filesystem(name).age]):
        raise ConfigError(f"--age: {already[0]} has an age already", hint="give the one or the other")
    aged = tuple(filesystem(age.aged(name)).name if age else name for name in names for age in ages)
    _check_ages([age for name in aged if (age := filesystem(name).age)])
    return aged


def filesystems_again(options: BenchOptions) -> tuple[str, ...] | None:
    """The filesystems that are given to a run which goes on, at their ages; None if none are. Raises ConfigError."""
    given = [each.name for each in fields(BenchOptions) if each.name.split("_")[0] == _AGE]
    if options.fs is None and all(getattr(options, name) is None for name in given):
        return None
    if options.fs is None and options.suite is None:
        raise ConfigError("--age: a run that goes on has its own ages", hint="leave --age out, or give --fs as well")
    names = suite(options.suite or "").filesystems if options.fs is None else options.fs
    return aged_filesystems(named_filesystems(names), options)


def _ages(options: BenchOptions) -> tuple[Age | None, ...]:
    texts = listed(options.age, option="--age") if options.age is not None else (NEW,)
    fill = DEFAULT_FILL if options.age_fill is None else options.age_fill
    seed = 1 if options.age_seed is None else options.age_seed
    if not texts:
        raise ConfigError("--age names no age", hint="for example --age 0,1y,5y")
    if all(text == NEW for text in texts):
        if (options.age_profile, options.age_fill, options.age_seed) != (None, None, None):
            raise ConfigError("--age-profile, --age-fill and --age-seed are of aged filesystems", hint="--age 0,1y,5y")
        return (None,)
    if options.age_profile is None:
        hint = f"--age-profile {' or '.join(profile_names())} says what the device does in that time"
        raise ConfigError("--age needs a profile of use", hint=hint)
    if not 1 <= fill <= _MOST_FILL:
        raise ConfigError(f"--age-fill {fill}: it is out of range", hint=f"choose 1 to {_MOST_FILL} percent")
    if not 1 <= seed <= _LARGEST_AGE_SEED:
        raise ConfigError(f"--age-seed {seed}: it is out of range", hint=f"choose 1 to {_LARGEST_AGE_SEED}")
    ages = (None if text == NEW else Age(days_of(text), options.age_profile, fill, seed) for text in texts)
    return tuple(dict.fromkeys(ages))


def _check_ages(ages: Iterable[Age]) -> None:
    """Raise ConfigError for an unknown profile, and for two ages that are replayed as the same."""
    saturated: dict[tuple[str, int, int], Age] = {}
    for age in dict.fromkeys(ages):
        usage_of(age)
        if turns(age) < MOST_TURNS:
            continue
        other = saturated.setdefault((age.profile, age.fill, age.seed), age)
        if other != age:
            days = age.days * MOST_TURNS / turns(age)
            raise ConfigError(
                f"{other.name} and {age.name} are the same: {age.profile} writes its card {MOST_TURNS:g} times in "
                f"{days:.0f} days, and more is not replayed",
                hint=f"choose one of them, and ages below {days:.0f}d",
            )
