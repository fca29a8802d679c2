#!/usr/bin/env python3
"""Joules of meters that are wired wrong or lose samples: how many are wrong, and valid without a complaint?

A trial is one measurement: a second of idle power, some seconds of work between two marks, at powers that change all
5 to 50 ms. What an instrument sends of it goes through its own decoder and through the bench's judge. The joules are
known. Each instrument in turn has each fault:

swapped     the leads: the current has the other sign. A PPK2 then reads nothing, a processor's counter has no leads
unplugged   no current flows through the meter: always, from a moment on, or for at least 6 ms of the work
saturated   in some of the work the board draws more than the instrument can measure
lossy       5 to 75 % of what is sent is lost: frames, readings, or whole turns of a PPK2's counter of 64 samples; all
            the time, in one piece of the work, or in bursts
another     the meter is in another board's supply, which works at something else
nothing     no fault, on a computer that is late now and then

`none` have no energy, but a reason. `wrong` are those whose gross or net energy is off by more than twice its
uncertainty (k=1), `silent` those of them that are valid; `refused` are the right ones that are invalid all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from fake_bench import IMAGE, PROFILE, answer, bench_of, entry
from meter_lines import MeterLine
from output import Report, arguments, told
from ppk2_frames import metadata

from fsjoule.bench.judge import WorkFacts, judge
from fsjoule.meter.energy.chips import CHIPS, chip_limits
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.links.iio import IIO, Source, source_of
from fsjoule.meter.links.joulescope import JOULESCOPE, POWER, VOLTAGE, StreamTrace
from fsjoule.meter.links.receiver import Agreement
from fsjoule.meter.protocol.frames import FrameDecoder
from fsjoule.meter.protocol.polled import SampleTrace
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, CounterTrace
from fsjoule.meter.protocol.ppk2 import SOURCE, parse_metadata
from fsjoule.meter.protocol.ppk2_trace import Ppk2Trace
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Mark, MarkSource, Measurement, PlainInfo, Trace
from fsjoule.model.instrument_file import Accuracy
from fsjoule.model.meter import READ_S, TURN_S
from fsjoule.testing import FakeMeter, FakeShell

FAULTS: Final = ("swapped", "unplugged", "saturated", "lossy", "another", "nothing")
_IDLE_S, _TAIL_S, _VOLTS = 1.0, 0.4, 5.0
_BEGIN_US: Final = 5_000_000
_ACCURACY: Final = stated_limits(
    Accuracy(volts_percent=0.1, volts_offset=0.005, amperes_percent=0.5, amperes_offset=1e-3)
)
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """What happens: the power of the board and that of what the meter is in, in each millisecond; marks in us.

    `lost` are the milliseconds in which things get lost, a share `share` of them. `late_us` is how late a computer
    takes what has come.
    """

    watts: Floats
    seen_w: Floats
    off_w: float
    marks_us: tuple[int, int]
    fault: str
    lost: Flags
    share: float
    most_a: float
    random: np.random.Generator

    @property
    def amperes(self) -> Floats:
        """What the instrument converts: at most its range."""
        return np.clip(self.seen_w / _VOLTS, -self.most_a, self.most_a)

    def joules(self, begin_us: float, end_us: float) -> float:
        """The board uses so many joules between two times of the meter in microseconds."""
        edges = np.clip(np.arange(len(self.watts) + 1) * 1000.0, begin_us, end_us)
        return float(self.watts @ np.diff(edges)) * 1e-6

    def keeps(self, at_ms: float) -> bool:
        """Whether something that is sent now arrives."""
        at = min(int(at_ms), len(self.lost) - 1)
        return not (self.lost[at] and self.random.random() < self.share)


def _steps(random: np.random.Generator, count: int, low_w: float, high_w: float) -> Floats:
    lengths = random.integers(5, 51, count)
    return np.repeat(random.uniform(low_w, high_w, count), lengths)[:count]


def scene_of(fault: str, most_a: float, random: np.random.Generator) -> Scene:
    """One measurement; the load fits an instrument that measures `most_a`."""
    scale = min(1.0, most_a / 1.0)
    work_ms = int(random.integers(1000, 4001))
    begin, count = int(_IDLE_S * 1000), int((_IDLE_S + _TAIL_S) * 1000) + work_ms
    idle_w, more_w = random.uniform(0.4, 1.5) * scale, random.uniform(0.2, 1.5) * scale
    watts = _steps(random, count, 0.97 * idle_w, 1.03 * idle_w)
    watts[begin : begin + work_ms] = _steps(random, work_ms, idle_w, idle_w + 2 * more_w)
    start_us = begin * 1000 + int(random.integers(0, 1000))
    marks = start_us, start_us + (work_ms - 1) * 1000 + int(random.integers(0, 1000))
    inside = np.zeros(count, dtype=bool)
    piece_ms = int(random.integers(6, work_ms))
    at = begin + int(random.integers(0, work_ms - piece_ms + 1))
    inside[at : at + piece_ms] = True
    seen, off_w, share, lost = watts.copy(), 0.0, 0.0, np.zeros(count, dtype=bool)
    kind = random.integers(3)
    if fault == "swapped":
        seen = -seen
    elif fault == "unplugged":
        seen[{0: slice(None), 1: slice(at, None), 2: inside}[int(kind)]] = 0.0
    elif fault == "saturated":
        watts[inside] = most_a * _VOLTS * random.uniform(1.05, 3)
        seen = watts.copy()
    elif fault == "lossy":
        share = random.uniform(0.05, 0.75)
        bursts = np.repeat(random.random(count) < 0.5, random.integers(20, 400))[:count]
        lost = {0: np.ones(count, dtype=bool), 1: inside, 2: bursts}[int(kind)]
    elif fault == "another":
        other_w = random.uniform(0.4, 1.5) * scale
        seen = _steps(random, count, other_w, other_w + random.uniform(0.0, 2.0) * scale)
        off_w = float(_steps(random, 300, other_w, other_w + 0.5 * scale).mean())
    return Scene(watts, seen, off_w, marks, fault, lost, share, most_a, random)


def _named(scene: Scene) -> tuple[Mark, Mark]:
    start, stop = (_BEGIN_US + each for each in scene.marks_us)
    return Mark(start, "S1"), Mark(stop, "E1")


def _plain(kind: str, rate_hz: int, settings: dict[str, float], *, volts: bool = True) -> PlainInfo:
    return PlainInfo(
        instrument=kind,
        firmware="7",
        serial_number="T1",
        rate_hz=rate_hz,
        measures_voltage=volts,
        simulated=False,
        settings=settings,
    )


def own_meter(scene: Scene) -> Trace:
    """An INA219 at 0.1 Ohm and 80 mV: frames of 20 samples."""
    line = MeterLine(tick=_BEGIN_US // 1000)
    line.info(flags=2)
    raws = np.round(scene.amperes * 1e4).astype(int).tolist()
    marks = list(_named(scene))
    sent: list[tuple[int, bytes]] = [(0, line.frames[0])]
    for at in range(0, len(raws), 20):
        if marks and marks[0].time_us < (line.tick + 20) * 1000:
            mark = marks.pop(0)
            sent.append((at, line.mark(mark.text, time_us=mark.time_us)))
        sent.append((at, line.samples(raws[at : at + 20])))
    decoder = FrameDecoder()
    agreement, builder = Agreement(decoder.counters), TraceBuilder()
    for at, frame in sent:
        if at == 0 or scene.keeps(at):
            builder.add(agreement.agreed(decoder.feed(frame)))
    return builder.build()


_CONSTANTS: Final = parse_metadata(metadata()).constants


def ppk2(scene: Scene) -> Trace:
    """USB packets of one to four turns of the counter are lost; what has come is read every ten milliseconds."""
    random = scene.random
    amperes = np.repeat(np.maximum(scene.amperes, 0.0), 100)
    raw = _CONSTANTS.raw_of(amperes, np.full(len(amperes), 4), _VOLTS)
    words = np.floor(raw + random.random(len(raw))).clip(0, 0x3FFF).astype(np.uint32)
    words |= np.uint32(4 << 14) | ((np.arange(len(words), dtype=np.uint32) % 64) << 18)
    trace = Ppk2Trace(_plain("ppk2", 1000, {SOURCE: 1.0} | _ACCURACY), _CONSTANTS, _VOLTS, None)
    packet = 64 * int(random.integers(1, 5))
    waiting, marks = b"", list(_named(scene))
    read_us = 10_000
    for at in range(0, len(words), packet):
        now_us = (at + packet) * 10
        if scene.keeps(at / 100):
            waiting += words[at : at + packet].tobytes()
        if now_us >= read_us:
            late_us = int(random.exponential(1000)) + (int(random.integers(0, 80_000)) if random.random() < 0.02 else 0)
            trace.feed(waiting, _BEGIN_US + now_us + late_us)
            waiting, read_us = b"", now_us + max(10_000, late_us)
        while marks and marks[0].time_us <= _BEGIN_US + now_us and trace.end_us:
            trace.mark(marks.pop(0))
    if waiting:
        trace.feed(waiting, _BEGIN_US + len(words) * 10)
    taken = trace.take()
    return replace(taken, marks=tuple(replace(each, source=MarkSource.LINE) for each in taken.marks))


def _asked(scene: Scene, every_ms: int, settings: dict[str, float], kind: str) -> Trace:
    """Volts and amperes, asked again and again; a lost reading is one that nobody had time for."""
    trace = SampleTrace(_plain(kind, 1000 // every_ms, settings | {READ_S: every_ms / 1000}))
    registers = {"voltage1": _VOLTS * 1e3 / 1.25, "voltage0": 0.0}
    channels = {name: frozenset({"raw", "scale"}) for name in registers}

    def read(channel: str, attribute: str) -> float:
        return registers[channel] if attribute == "raw" else {"voltage1": 1.25, "voltage0": 0.0025}[channel]

    source = source_of("iio:device0", "ina226", channels, 0.1, read)
    assert isinstance(source, Source)
    for at in range(0, len(scene.watts), every_ms):
        late_ms = int(scene.random.exponential(0.1 * every_ms))
        now = min(at + late_ms, len(scene.watts) - 1)
        if not scene.keeps(at) or _BEGIN_US + now * 1000 <= trace.end_us:
            continue
        mean_a = float(scene.amperes[max(0, now - every_ms // 3) : now + 1].mean())
        registers["voltage0"] = float(np.round(mean_a * 0.1 / 2.5e-6).clip(-32768, 32767))
        volts, amperes, beyond = source.reading(read) if kind == IIO else (_VOLTS, mean_a, False)
        trace.add(_BEGIN_US + now * 1000, volts, amperes, clipped=beyond)
    taken = trace.take()
    return replace(taken, marks=_named(scene))


def iio(scene: Scene) -> Trace:
    limits = chip_limits(CHIPS["ina226"], 0.1, None, own_power=False)
    return _asked(scene, 10, limits | {TURN_S: 0.0035}, IIO)


def scpi(scene: Scene) -> Trace:
    return _asked(scene, 50, _ACCURACY, "scpi")


def joulescope(scene: Scene) -> Trace:
    """Ten samples a millisecond of power and voltage, in messages of 20 ms."""
    trace = StreamTrace(_plain(JOULESCOPE, 1000, _ACCURACY))
    clock = {"offset_time": 0, "offset_counter": 0, "counter_rate": 1_000_000.0}
    watts = np.repeat(scene.amperes * _VOLTS, 10)
    for at in range(0, len(watts), 200):
        data = watts[at : at + 200]
        message = {"sample_rate": 1_000_000, "decimate_factor": 100, "sample_id": _BEGIN_US + at * 100}
        message |= {"time_map": clock}
        if at == 0 or at + 200 >= len(watts) or scene.keeps(at / 10):
            trace.stream(POWER, message | {"data": data})
            trace.stream(VOLTAGE, message | {"data": np.full(len(data), _VOLTS)})
    return replace(trace.take(last=True), marks=_named(scene))


def powercap(scene: Scene) -> Trace:
    """A counter of 65 kJ, which a suspend may set back; a lost reading is one that nobody had time for."""
    info = _plain(POWERCAP, 100, {UPDATE_US: 1000.0, RANGE_UJ: 65_532_610_987.0}, volts=False)
    trace = CounterTrace(info)
    sums_uj = np.concatenate([[0.0], np.cumsum(scene.seen_w) * 1e3])
    start, set_back = int(scene.random.integers(0, 65_532_610_987)), 0
    for at in range(0, len(sums_uj), 10):
        if scene.fault == "lossy" and scene.random.random() < 0.002:
            set_back = start + int(sums_uj[at])
        if scene.keeps(at):
            trace.add(_BEGIN_US + at * 1000, (start + int(sums_uj[at]) - set_back) % 65_532_610_987)
    return replace(trace.take(), marks=_named(scene))


# Each with the largest current of its range, and the faults that it cannot have.
INSTRUMENTS: Final[dict[str, tuple[Callable[[Scene], Trace], float, tuple[str, ...]]]] = {
    "own meter": (own_meter, 0.8, ()),
    "PPK2": (ppk2, 1.03, ()),
    "IIO": (iio, 0.08192 / 0.1, ()),
    "SCPI": (scpi, 3.0, ("saturated",)),  # it says so itself
    "Joulescope": (joulescope, 10.0, ()),
    "powercap": (powercap, 100.0, ("swapped", "unplugged", "saturated", "another")),
}


@dataclass
class Counts:
    trials: int = 0
    none: int = 0
    wrong: int = 0
    silent: int = 0
    refused: int = 0


def judged(scene: Scene, trace: Trace) -> Measurement:
    """The bench's verdict; the board's own time is a little shorter than the window, by the programs that mark."""
    plan = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    started_us, stopped_us = scene.marks_us
    evidence = WorkFacts(
        trace=trace,
        marks=("S1", "E1"),
        idle_s=_IDLE_S,
        duration_s=(stopped_us - started_us) * 1e-6 - scene.random.uniform(0.0, 0.02),
        moved_bytes=1 << 20,
        off_w=None if trace.info.kind == POWERCAP else scene.off_w,
    )
    wanted = entry(plan, "write-16k")
    return judge(
        wanted, evidence, profile=PROFILE, boot=1, storage="card", card=IMAGE, started_utc="1970-01-01T00:00:00Z"
    )


def is_wrong(scene: Scene, measurement: Measurement) -> bool:
    """Whether one of its energies is off by more than twice its uncertainty."""
    energy = measurement.energy
    if energy is None:
        return False
    started_us, stopped_us = scene.marks_us
    gross_mj = scene.joules(started_us, stopped_us) * 1e3
    idle_w = scene.joules(150_000, _IDLE_S * 1e6 - 150_000) / (_IDLE_S - 0.3)
    net_mj = gross_mj - idle_w * (stopped_us - started_us) * 1e-3
    pairs = ((energy.gross_mj, gross_mj), (energy.net_mj, net_mj))
    return any(abs(found.value - right) > 2 * found.uncertainty for found, right in pairs)


def trials(fault: str, count: int, seed: int) -> dict[str, Counts]:
    """So many measurements with a fault, of the instruments in turn."""
    able = [name for name, (_, _, never) in INSTRUMENTS.items() if fault not in never]
    counts = {name: Counts() for name in able}
    for number in told(range(count), count, fault):
        name = able[number % len(able)]
        send, most_a, _ = INSTRUMENTS[name]
        scene = scene_of(fault, most_a, np.random.default_rng([seed, FAULTS.index(fault), number]))
        measurement, here = judged(scene, send(scene)), counts[name]
        wrong = is_wrong(scene, measurement)
        here.trials += 1
        here.none += measurement.energy is None
        here.wrong += wrong
        here.silent += wrong and measurement.valid
        here.refused += not wrong and not measurement.valid and measurement.energy is not None
    return counts


def main() -> None:
    options = arguments(str(__doc__), trials=100).parse_args()
    report = Report("Joules of meters with faults", {"trials": options.trials, "seed": options.seed})
    for fault in FAULTS:
        for name, counts in trials(fault, options.trials, options.seed).items():
            if counts.trials:
                report.rows.append({"fault": fault, "instrument": name, **vars(counts)})
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
