"""One fault from its start to its verdict."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench_runs import as_good_as_can_be

from faults import checks
from faults.kinds import Kind, Lab
from faults.scene import SHORTEST, Bench, Scene
from faults.watch import NotReachedError, Phase, await_phase
from fsjoule.model import RunStatus

# What the rest of a bench may take after a fault that it gets over; a next bench, too.
_GOES_ON_S: Final = 300.0
_NEVER_S: Final = 400.0
CHECKS: Final = (
    *("injected", "code", "time", "message", "data"),
    *("place free", "board off", "nothing left", "hands off", "next bench"),
)


@dataclass
class Outcome:
    """What was injected and what came of it. `complaints` has an entry for each check that was made, empty if it held.

    `resumed` tells whether the next bench went on with the run, or was a new one.
    """

    number: int
    kind: str
    seed: int
    phase: str
    folder: str
    lab: str
    into_s: float = 0.0
    did: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    resumed: bool = False
    load: float = 0.0
    complaints: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    # What the bench said of the fault, for one that did not come out right.
    told: str = ""

    @property
    def fine(self) -> bool:
        return not any(self.complaints.values())

    def text(self) -> str:
        """One line, and one more for each complaint."""
        what = f"{self.kind:<23} {self.lab:<8} {self.phase:<12} exit {self.exit_code!s:>4} after {self.seconds:5.1f} s"
        wrong = [f"\n      {check}: {each}" for check, all_ in self.complaints.items() for each in all_]
        wrong += [f"\n      | {line}" for line in self.told.splitlines()]
        again = "" if self.fine else f"\n      again: --seed {self.seed} --only {self.number} --kinds {self.kind}"
        return f"{'ok  ' if self.fine else 'FAIL'} {what}  {self.did}{''.join(wrong)}{again}"


def inject(
    kind: Kind,
    number: int,
    seed: int,
    folder: Path,
    *,
    patience: float = 1.0,
    keep: bool = False,
    phase: Phase | None = None,
    next_bench: bool = True,
) -> Outcome:
    """Inject one fault of a kind in a folder of its own; everything random about it comes from seed and number.

    `patience` multiplies the limits, for a machine that is busy. The folder goes if all was fine, unless it is to be
    kept. `phase` is one of the kind's, if it is not to be left to chance.
    """
    rng = random.Random(f"{seed} {number} {kind.name}")
    lab = rng.choice([Lab.OWN, Lab.STANDING]) if kind.lab is Lab.EITHER else kind.lab
    # The lab of somebody else is up before the bench begins.
    phase = phase or rng.choice([each for each in kind.phases if lab is Lab.OWN or each is not Phase.SET_UP])
    outcome = Outcome(number, kind.name, seed, phase.value, str(folder), lab.value)
    # A meter that can be told from those of the labs beside it; in guest time it has a number by itself.
    serial = "" if kind.guest_time else f"F{number}"
    scene = Scene(folder, rng, serial, guest_time=kind.guest_time, standing=lab is Lab.STANDING)
    try:
        _bring_about(kind, phase, scene, outcome, patience, next_bench=next_bench)
    except Exception:  # noqa: BLE001 - a campaign goes on, and this fault counts as failed
        outcome.complaints.setdefault("injected", []).append(traceback.format_exc())
    finally:
        scene.mending.close()
        scene.closing.close()
    outcome.load = os.getloadavg()[0]
    _clear_up(folder, all_of_it=outcome.fine and not keep)
    return outcome


def _bring_about(
    kind: Kind, phase: Phase, scene: Scene, outcome: Outcome, patience: float, *, next_bench: bool
) -> None:
    if scene.standing:
        scene.bring_up()
    prepared = kind.prepare(scene)
    bench = kind.start(scene)
    try:
        outcome.into_s = round(await_phase(scene, bench, phase), 2)
        injected_s = time.monotonic()
        outcome.did = " ".join(filter(None, (prepared, kind.act(scene, bench))))
    except NotReachedError as error:
        outcome.complaints["injected"] = [str(error)]
        bench.wait(_NEVER_S * patience)
        return
    outcome.exit_code = bench.wait((kind.within_s + _GOES_ON_S) * patience)
    if outcome.exit_code is None:
        bench.send(signal.SIGKILL)
        bench.wait(_NEVER_S)
    outcome.seconds = round((bench.ended_s or time.monotonic()) - injected_s, 1)
    _judge(kind, scene, bench, outcome, patience)
    if not next_bench:
        return
    outcome.complaints["data"] += checks.shown(scene, scene.run_folder())
    scene.mending.close()
    if scene.standing and kind.service_dies:
        scene.take_down()
        scene.bring_up()
    outcome.complaints["next bench"] = _next_bench(kind, scene, outcome, patience)


def _judge(kind: Kind, scene: Scene, bench: Bench, outcome: Outcome, patience: float) -> None:
    text, folder = bench.text(), scene.run_folder()
    run = checks.loaded(folder)
    limit_s = (kind.within_s + (_GOES_ON_S if outcome.exit_code == 0 or kind.passes else 0.0)) * patience
    outcome.complaints |= {
        "injected": scene.findings,
        "code": checks.code(outcome.exit_code, kind.codes, run, must_succeed=kind.passes),
        "time": [] if outcome.seconds <= limit_s else [f"{outcome.seconds:.0f} s, not {limit_s:.0f} s"],
        "message": checks.message(text, outcome.exit_code, kind.names, always=kind.always),
        "data": checks.data(text, folder, scene.serial),
    }
    if not kind.hands_off:
        outcome.complaints |= checks.standing_lab_idle(scene) if scene.standing else checks.own_lab_gone(scene)
    if scene.afterwards:
        outcome.complaints["hands off"] = [each for look in scene.afterwards for each in look()]
    outcome.told = "" if outcome.fine else checks.told(text)


def _next_bench(kind: Kind, scene: Scene, outcome: Outcome, patience: float) -> list[str]:
    """Go on with the run if it was aborted; else measure anew. Either is to succeed."""
    scene.stdout = None
    if kind.again is not None:
        again = kind.again(scene)
        exit_code = again.wait(_GOES_ON_S * patience)
        return [] if exit_code == 0 else [f"it ended with {exit_code}; see {again.output}"]
    folder = scene.run_folder()
    run = checks.loaded(folder)
    outcome.resumed = run is not None and run.run.status is RunStatus.ABORTED
    if outcome.resumed:
        bench = scene.bench(resume=folder)
    else:
        folder = None
        # Its contents: the folder may be a disk of its own.
        first = scene.folder / "first-results"
        first.mkdir()
        for each in scene.results.iterdir():
            shutil.move(each, first)
        bench = scene.bench(chosen=SHORTEST)
    exit_code = bench.wait(_GOES_ON_S * patience)
    complaints = checks.message(bench.text(), exit_code, "")
    if not as_good_as_can_be(exit_code, checks.loaded(folder or scene.run_folder())):
        complaints.append(f"it ended with {exit_code}; see {bench.output}")
    left = checks.standing_lab_idle(scene) if scene.standing else checks.own_lab_gone(scene)
    return complaints + [f"after it: {check}: {each}" for check, all_ in left.items() for each in all_]


def _clear_up(folder: Path, *, all_of_it: bool) -> None:
    if all_of_it:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for card in folder.glob("state/labs/*/card.img"):
        card.unlink()
    shutil.rmtree(folder / "cache", ignore_errors=True)
