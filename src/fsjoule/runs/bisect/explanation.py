"""Why a bisection's culprit costs what it costs: one profiled boot of each side, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fsjoule.errors import LabError
from fsjoule.model.bisection import NoKernel
from fsjoule.ports import KernelBoots, KernelBuilds
from fsjoule.runs.explain import explain_pair
from fsjoule.store.bisection import BisectionLog, Profiled
from fsjoule.store.reader import load_run
from fsjoule.suites import repetition_seed
from fsjoule.verdicts.bisection.answer import pair
from fsjoule.verdicts.bisection.state import State
from fsjoule.verdicts.explanation.changes import Explanation

# Both boots share their random choices, which no other boot of a bisection has.
_REPETITION = 4_000
_SHORT = 12


def profile_pair(log: BisectionLog, builds: KernelBuilds, boots: KernelBoots, say: Callable[[str], None]) -> State:
    """Boot both sides of the answer's loss with profiles, unless that was done, or there is none.

    Raises LabError if a side cannot be profiled; the answer stays.
    """
    state = State.of(log.events)
    for kernel in pair(state) or ():
        if any(each.kernel == kernel for each in state.profiled):
            continue
        say(f"a boot with a profile: {kernel.commit[:_SHORT]}")
        built = builds.take(kernel)
        if isinstance(built, NoKernel):
            raise LabError(f"{kernel.commit[:_SHORT]} has no kernel any more: {built.why}")
        seed = repetition_seed(state.asked.seed, _REPETITION)
        boot = boots.measure(built.folder, seed, profiled=True)
        if boot.unfit is not None:
            raise LabError(f"{kernel.commit[:_SHORT]} did not do its work: {boot.unfit}", transient=True)
        log.add(Profiled(kernel, boot.run_id, str(boot.folder), boot.seconds, seed))
    return State.of(log.events)


def explain_bisection(state: State) -> tuple[Explanation, ...]:
    """The answer's loss by function; nothing where no boots were profiled for it.

    Raises ResultError if their run folders are gone.
    """
    folders = {each.kernel: Path(each.folder) for each in state.profiled}
    sides = pair(state) if folders else None
    if sides is None or not folders.keys() >= set(sides):
        return ()
    baseline, candidate = ((state.added(side.commit)[:_SHORT], load_run(folders[side])) for side in sides)
    return explain_pair(baseline, candidate)
