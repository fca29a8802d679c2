"""Do all instruments measure the same joules? Benches on the virtual board, one with each instrument's emulator.

python benchmarks/instruments_agree.py [--only iio,scpi] [--json]

Each bench has one instrument in it; beside it this script records fsjoule's own meter, which measures the same supply
and hears the same marks. Of each window it compares the joules of both, by each one's own marks and uncertainty. An
instrument agrees if the two differ by no more than twice the uncertainty of the difference (k=2), the windows' limits
for programs that send the marks left out: both have them in common.

The two clocks are put together by the power: the shift at which the meter's joules fit the instrument's ticks best. So
a mark's latency is how much later the instrument has it than the meter has it. All of it is simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import FsjouleError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.lab.environment import read_environment
from fsjoule.meter.energy import energy
from fsjoule.meter.instruments import INSTRUMENTS as KINDS
from fsjoule.model import Mark, Trace, Window
from fsjoule.store.reader import load_run
from fsjoule.store.traces import read_trace

Floats = npt.NDArray[np.float64]

# The environment file of each. The PPK2 has a board of its own.
_PPK2: Final = "ppk2"
INSTRUMENTS: Final = {
    name: "virtual-ppk2" if name == _PPK2 else "virtual-instrument"
    for name, row in KINDS.items()
    if row.emulator_module
}
# Boot, mkfs, mount, unmount and both writes: windows of one second to ten.
_WORDS: Final = (
    *("--suite", "quick", "--fs", "ext4", "--kernel", "6.1", "--repeat", "1"),
    *("-k", "not ext4-read-16k and not randread"),
)
_BENCH_S: Final = 900.0
_SHORT_S: Final = 60.0
_K: Final = 2.0
# The shifts that are tried, around the one that puts both start marks together.
_REACH_US: Final = 200_000.0
_STEP_US: Final = 1_000.0
_MARGIN_US: Final = 500_000.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A window in both instruments: joules with standard uncertainties, and how late the instrument's marks are."""

    what: str
    seconds: float
    joules: float
    uncertainty: float
    own_joules: float
    own_uncertainty: float
    start_ms: float
    stop_ms: float

    @property
    def ratio(self) -> float:
        return self.joules / self.own_joules

    @property
    def agrees(self) -> bool:
        return abs(self.joules - self.own_joules) <= _K * float(np.hypot(self.uncertainty, self.own_uncertainty))


@dataclass(slots=True)
class Result:
    """`refused` are windows whose energy an instrument does not tell, with the reason."""

    name: str
    windows: list[Compared] = field(default_factory=list[Compared])
    refused: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        """What the table shows, of all windows."""
        ratios = [each.ratio for each in self.windows]
        shares = [each.uncertainty / each.joules for each in self.windows]
        late_ms = [ms for each in self.windows for ms in (each.start_ms, each.stop_ms)]
        found: dict[str, Any] = {"windows": len(self.windows), "refused": len(self.refused)}
        if self.windows:
            found |= {
                "ratio_least": min(ratios),
                "ratio_median": float(np.median(ratios)),
                "ratio_largest": max(ratios),
                "uncertainty_least": min(shares),
                "uncertainty_largest": max(shares),
                "agree": sum(each.agrees for each in self.windows),
                "mark_median_ms": float(np.median(late_ms)),
                "mark_worst_ms": max(late_ms, key=abs),
            }
        return found | {"seconds": round(self.seconds, 1)}


@contextmanager
def _lab(name: str, board: str) -> Generator[None]:
    _fsjoule("lab", "up", "--name", name, "--board", board)
    try:
        yield
    finally:
        _fsjoule("lab", "down", "--name", name)


@contextmanager
def _recorded(lab: str, path: Path) -> Generator[None]:
    """Record the lab's own meter into a file while the body runs."""
    words = [_program(), "meter", "record", "--meter", f"lab:{lab}", "-o", str(path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:  # noqa: S603 - ours
        time.sleep(2.0)
        try:
            yield
        finally:
            recorder.terminate()
            recorder.wait(_SHORT_S)


def _bench(environment: Path, results: Path, words: Sequence[str]) -> Path:
    command = [sys.executable, "-m", "pytest", "tests/bench", "-q", "--lg-env", str(environment)]
    # A measurement may be invalid, and then the bench ends with 1: its trace counts all the same.
    process.run([*command, "--results", str(results), *words], cwd=project_dir(), timeout_s=_BENCH_S, check=False)
    [folder] = results.iterdir()
    return folder


def _fsjoule(*words: str) -> None:
    process.run([_program(), *words], timeout_s=_SHORT_S * 5)


def _program() -> str:
    return str(Path(sys.executable).parent / "fsjoule")


def compare(name: str, folder: Path, own: Trace) -> Result:
    """Each measurement of a bench beside the meter's recording."""
    result, run = Result(name), load_run(folder)
    for each in run.measurements:
        trace = run.trace(each.number)
        if trace is None or each.window is None or each.idle_window is None:
            result.refused.append(f"{each.slug}: {'; '.join(each.invalid_reasons) or 'no window'}")
            continue
        marks = _marks_at(trace, each.window)
        found = _own_window(own, marks, each.window.duration_s)
        if found is None:
            result.refused.append(f"{each.slug}: the meter did not hear {marks[0].text} and {marks[1].text}")
            continue
        by_us = _shift_us(trace, own, each.window, found.start_us - each.window.start_us)
        idle = Window(each.idle_window.start_us + by_us, each.idle_window.stop_us + by_us)
        try:
            theirs, ours = energy(trace, each.window, each.idle_window), energy(own, found, idle)
        except FsjouleError as error:
            result.refused.append(f"{each.slug}: {error.what}")
            continue
        result.windows.append(
            Compared(
                what=each.slug,
                seconds=each.window.duration_s,
                joules=theirs.gross_mj.value * 1e-3,
                uncertainty=theirs.gross_mj.uncertainty * 1e-3,
                own_joules=ours.gross_mj.value * 1e-3,
                own_uncertainty=ours.gross_mj.uncertainty * 1e-3,
                start_ms=(each.window.start_us + by_us - found.start_us) * 1e-3,
                stop_ms=(each.window.stop_us + by_us - found.stop_us) * 1e-3,
            )
        )
    return result


def _marks_at(trace: Trace, window: Window) -> tuple[Mark, Mark]:
    nearest: Callable[[float], Mark] = lambda at_us: min(trace.marks, key=lambda each: abs(each.time_us - at_us))  # noqa: E731
    return nearest(window.start_us), nearest(window.stop_us)


def _own_window(own: Trace, marks: tuple[Mark, Mark], seconds: float) -> Window | None:
    """The window between the meter's marks of these texts; of several the one that lasts as long."""
    starts, stops = ([each.time_us for each in own.marks if each.text == mark.text] for mark in marks)
    pairs = [Window(float(start), float(stop)) for start in starts for stop in stops if stop > start]
    return min(pairs, key=lambda each: abs(each.duration_s - seconds), default=None)


def _shift_us(trace: Trace, own: Trace, window: Window, first_us: float) -> float:
    """What the instrument's times lack to those of the meter, by the power around a window."""
    tick_us = trace.info.tick_us
    near = (trace.times_us > window.start_us - _MARGIN_US) & (trace.times_us < window.stop_us + _MARGIN_US)
    times_us, watts = trace.times_us[near].astype(np.float64), trace.power_w[near]
    own_us, own_w = own.times_us.astype(np.float64), own.power_w
    edges_us = np.append(own_us, own_us[-1] + own.info.tick_us)
    sums = np.concatenate([[0.0], np.cumsum(own_w * np.diff(edges_us))])

    def misfit(by_us: float) -> float:
        begun, ended = (np.interp(times_us + at_us, edges_us, sums) for at_us in (by_us, by_us + tick_us))
        return float(np.square(watts - (ended - begun) / tick_us).sum())

    tried = first_us + np.arange(-_REACH_US, _REACH_US + 1, _STEP_US)
    return float(tried[int(np.argmin([misfit(by_us) for by_us in tried.tolist()]))])


def _show(results: Sequence[Result]) -> None:
    print(f"simulated; load {os.getloadavg()[0]:.1f}; ratio: joules over those of fsjoule's own meter")
    heads = ("instrument", "windows", "refused", "ratio", "uncertainty (k=1)", "agree (k=2)", "mark/ms median", "worst")
    print("  ".join(f"{head:<17}" for head in heads))
    for each in results:
        found = each.figures()
        cells = [each.name, str(found["windows"]), str(found["refused"])]
        if each.windows:
            cells += [
                f"{found['ratio_least']:.3f} to {found['ratio_largest']:.3f}",
                f"{found['uncertainty_least']:.1%} to {found['uncertainty_largest']:.1%}",
                f"{found['agree']} of {found['windows']}",
                f"{found['mark_median_ms']:+.1f}",
                f"{found['mark_worst_ms']:+.1f}",
            ]
        print("  ".join(f"{cell:<17}" for cell in cells))
    for each in results:
        for why in each.refused:
            print(f"{each.name}: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(INSTRUMENTS), help="of these instruments (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep run folders and recordings here")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("words", nargs="*", metavar="-- OPTION", help="options of the bench")
    chosen = parser.parse_args()
    words = chosen.words or _WORDS
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="instruments-agree-") as temporary:
        for name in chosen.only.split(","):
            os.environ["LG_INSTRUMENT"] = name  # the environment file takes it from there
            environment = read_environment(project_dir() / "env" / f"{INSTRUMENTS[name]}.yaml")
            assert environment.virtual_lab is not None
            assert environment.virtual_board is not None
            folder = (chosen.keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            began_s, recording = time.monotonic(), folder / "meter.parquet"
            lab = environment.virtual_lab
            with _lab(lab, environment.virtual_board), _recorded(lab, recording):
                run = _bench(environment.path, folder / "runs", words)
            results.append(compare(name, run, read_trace(recording)))
            results[-1].seconds = time.monotonic() - began_s
            print(f"{name}: {results[-1].figures()}", file=sys.stderr, flush=True)
    if chosen.json:
        told = {each.name: each.figures() | {"each": [asdict(one) for one in each.windows]} for each in results}
        print(json.dumps({"simulated": True, "load": os.getloadavg()[0], "instruments": told}, indent=2))
    else:
        _show(results)


if __name__ == "__main__":
    main()
