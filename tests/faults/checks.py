"""What must hold after a fault. Each check returns complaints; none of them means that it holds."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench_runs import all_valid, as_good_as_can_be
from lab_leftovers import processes

from faults.act import writers
from faults.scene import Scene
from fsjoule.errors import FsjouleError
from fsjoule.model import Measurement, RunStatus
from fsjoule.report.oneline import one_line
from fsjoule.store.reader import LoadedRun, load_run

# A bench that was killed takes nothing down: its lab notices, and ends by itself.
_GONE_S: Final = 45.0
_LOOK_S: Final = 0.5
_PRINTED: Final = re.compile(r"^\[ *\d+/\d+\] (.+?)(?:; about .*)?$", re.MULTILINE)
_BUGS: Final = re.compile(
    r"Traceback \(most recent call last\)|INTERNALERROR|Exception ignored|never retrieved|Fatal Python error"
)
# What a fault that was got over leaves on the terminal.
_TOLD: Final = re.compile(r"trying again|no energy|building it again|^warning: (?!the computer is busy)", re.MULTILINE)
# What a bench says whether anything fails or not: it names all parts of the lab.
_PROGRESS: Final = re.compile(
    r"starting |lab is up|lab '\S+' is up|removing the leftovers|place '\S+' (?:acquired|released|was left)|place \S+, "
    r"exporter |results go to |card with kernel |card: |root partition: |building the |\d+ of \d+ measurements "
    r"(?:taken|are already there)|mean ± |MiB; the meter's own |report: |report  |run folder  |to measure the "
    r"rest: |virtual lab: |platform |rootdir: |configfile: |plugins: |collected |quick on |board utilisation"
)
# Where pytest shows source code; only its lines with an E tell what was raised there.
_SOURCE: Final = re.compile(r"=+ (?:ERRORS|FAILURES) =+")
_SOURCE_ENDS: Final = re.compile(r"\S.* on \S+, kernel |=+ .* =+")
_RAISED: Final = re.compile(r"E {3}")
_CONSOLE: Final = re.compile(r"(?:E +)?  console\| ")
# Folders of a campaign have the names of kinds.
_FILE: Final = re.compile(r"(?<![\w/])/[\w.@+-]+(?:/[\w.@+-]*)*")
# What the emulated board draws, idle or busy, in watts: another meter's figures would be outside.
_PLAUSIBLE_W: Final = (0.8, 2.0)
# What a bench runs, not folders that pytest has named.
_STRAY: Final = re.compile(r"\bfsjoule-writes:| --fsjoule-bench ")
_FINAL: Final = {RunStatus.COMPLETE, RunStatus.ABORTED}


def loaded(folder: Path | None) -> LoadedRun | None:
    """The run, if it can be read."""
    try:
        return None if folder is None else load_run(folder)
    except FsjouleError:
        return None


def code(exit_code: int | None, allowed: frozenset[int], run: LoadedRun | None, *, must_succeed: bool) -> list[str]:
    """One exit code a cause: 0 if, and only if, everything was measured and is valid."""
    if exit_code is None:
        return ["it did not end"]
    if exit_code == 0:
        return [] if all_valid(run) else ["exit code 0, and the run is not complete and valid"]
    if must_succeed:
        if as_good_as_can_be(exit_code, run):
            return []
        return [f"exit code {exit_code}: a second try should have made it"]
    return [] if exit_code in allowed else [f"exit code {exit_code}, not {' or '.join(map(str, sorted(allowed)))}"]


def message(text: str, exit_code: int | None, names: str, *, always: bool = False) -> list[str]:
    """The cause is named wherever the fault is told (or `always`), and nothing looks like a bug."""
    complaints = [f"it printed {found.group(0)!r}" for found in [_BUGS.search(text)] if found]
    if (always or exit_code != 0 or _TOLD.search(text)) and not re.search(names, told(text)):
        complaints.append(f"nothing in its output names the cause: {names}")
    return complaints


def told(text: str) -> str:
    """What a bench's output says of a fault: without progress, source code, the board's console, names of files."""
    kept: list[str] = []
    source = False
    for line in text.splitlines():
        source = not _SOURCE_ENDS.match(line) if source else False
        source = source or _SOURCE.match(line) is not None
        if not (_PROGRESS.match(line) or _CONSOLE.match(line) or (source and not _RAISED.match(line))):
            kept.append(_FILE.sub("FILE", line))
    return "\n".join(kept)


def data(text: str, run_folder: Path | None, serial: str) -> list[str]:
    """Everything printed as measured is there and readable, by one instrument, and the run knows its end."""
    printed = set[str](_PRINTED.findall(text))
    if run_folder is None:
        return [f"measurements {sorted(printed)} were printed, and there is no run"] if printed else []
    try:
        run = load_run(run_folder)
    except FsjouleError as error:
        return [f"the run cannot be read: {error}"]
    complaints: list[str] = []
    kernels = len(run.run.plan.kernels) > 1
    if missing := printed - {one_line(each, kernel=kernels, card=True) for each in run.measurements}:
        complaints.append(f"measurements {sorted(missing)} were printed and are not in the run")
    complaints += [f"{name} is damaged: {why}" for name, why in run.damaged.items() if not name.endswith(".partial")]
    if run.run.status not in _FINAL:
        complaints.append(f"the run says that it is {run.run.status}")
    complaints += [wrong for each in run.measurements for wrong in _energy(run, each, serial)]
    return complaints


def shown(scene: Scene, run_folder: Path | None) -> list[str]:
    """`fsjoule show` reads what is there."""
    if run_folder is None:
        return []
    done = scene.command("fsjoule", "show", run_folder, "--json")
    if done.returncode:
        return [f"fsjoule show ended with {done.returncode}: {done.stderr.strip()[-300:]}"]
    json.loads(done.stdout)
    return []


def _energy(run: LoadedRun, measurement: Measurement, serial: str) -> list[str]:
    try:
        trace = run.trace(measurement.number)
    except FsjouleError as error:
        return [f"the trace of {measurement.slug} cannot be read: {error}"]
    complaints: list[str] = []
    energy = measurement.energy
    if energy is None or not measurement.valid:
        return complaints
    if trace is None:
        return [f"{measurement.slug} has joules and no trace"]
    meter, found = run.run.meter, trace.info.serial_number
    if (serial and found != serial) or (meter and meter.serial_number != found):
        complaints.append(f"{measurement.slug} has the joules of the meter {trace.info.serial_number}")
    watts = energy.mean_power_w.value
    if not _PLAUSIBLE_W[0] < watts < _PLAUSIBLE_W[1]:
        complaints.append(f"{measurement.slug}: {watts:.3f} W is not what this board draws")
    return complaints


def own_lab_gone(scene: Scene) -> dict[str, list[str]]:
    """The bench brought the lab up: nothing of it is left, so the board is off and the place nobody's."""
    until_s = time.monotonic() + _GONE_S
    while (left := _left(scene)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    emulators = [each for each in left if "qemu-system" in each]
    return {
        "board off": emulators,
        "place free": [] if scene.lab is None else ["the lab is still noted as running"],
        "nothing left": left,
    }


def _left(scene: Scene) -> list[str]:
    return [
        *processes(scene.state),
        *(str(path) for path in scene.devices if path.exists()),
    ]


def standing_lab_idle(scene: Scene) -> dict[str, list[str]]:
    """Somebody else brought the lab up: it stays, with the board off and the place free."""
    shown = scene.command("fsjoule", "lab", "status", "--json")
    if shown.returncode:
        return {"board off": ["the lab is gone"], "place free": [], "nothing left": []}
    status = json.loads(shown.stdout)
    board = status["board"] or {"power": "unknown", "card": {"position": "unknown"}}
    return {
        "board off": [] if board["power"] == "off" else [f"the board's power is {board['power']}"],
        "place free": [] if status["holder"] is None else [f"the place is held by {status['holder']}"],
        "nothing left": _strays(scene),
    }


def _strays(scene: Scene) -> list[str]:
    """What a bench has started goes with it, on the exporter's side as well; the lab stays."""
    return _until_none(
        lambda: [
            *(each for each in processes(scene.state) if _STRAY.search(each)),
            *(f"{each.pid}, which writes the card" for each in writers(scene)),
        ]
    )


def _until_none(look: Callable[[], list[str]]) -> list[str]:
    until_s = time.monotonic() + 10.0
    while (found := look()) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return found
