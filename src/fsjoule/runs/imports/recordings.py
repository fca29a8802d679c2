"""Recordings of Nordic's PPK2 and of a Joulescope: samples become a trace, and its marks windows with their energy.

pyjls ships no types: strict checking would only report their absence.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import ConfigError, MeasurementInvalid
from fsjoule.meter.energy import energy
from fsjoule.meter.energy.stated import AMPERES_OFFSET, AMPERES_SHARE, VOLTS_OFFSET, VOLTS_SHARE
from fsjoule.meter.protocol.ppk2 import SOURCE, VOLTS
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace, Stated, Window
from fsjoule.model.metrics import Metric
from fsjoule.runs.imports.importers import Asked, Record, content_of, time_of, wrong

Floats = npt.NDArray[np.float64]

_RATE_HZ: Final = 1000  # of what is kept: as much as the driver keeps of either instrument
_IDLE_US: Final = 1e6
_LEAST_IDLE_US: Final = 0.1e6
_FRAME: Final = np.dtype([("ua", "<f4"), ("bits", "<u2")])
_D0: Final = 0b11  # Nordic has a pair of bits for each input: 01 low, 10 high, 11 both in one sample
_HIGH: Final = 0b10
_CURRENT: Final = "Current(uA)"
_TIMESTAMP: Final = "Timestamp(ms)"
_JLS_EPOCH_S: Final = 1_514_764_800  # 2018-01-01
_JLS_SECOND: Final = 1 << 30
_PAIR: Final = re.compile(r"(?:(?P<s>[SE])(?P<text>.*)|(?P<marker>\d+)(?P<side>[ab]))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Work in a recording: its name, and microseconds from the beginning."""

    name: str
    start_us: float
    stop_us: float


def read_ppk2(file: Path, asked: Asked) -> Iterator[Record]:
    """A window for each time that input D0 is high, else the whole recording. Raises ResultError, ConfigError."""
    if asked.volts is None:
        raise ConfigError("a PPK2's file has no voltage", hint="--volts 3.7: the device's")
    content = content_of(file)
    packed = zipfile.is_zipfile(BytesIO(content))
    amperes, high, rate_hz, said = _unzipped(file, content) if packed else _table(file, content)
    if not len(amperes) or not np.isfinite(amperes).all():
        raise wrong(file, None, "it has no samples" if not len(amperes) else "it has a sample that is no number")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], high.astype(np.int8), [0]])))
    name = asked.workload or file.stem
    whole_us = len(amperes) * 1e6 / rate_hz
    work = (
        [
            _Stretch(f"{name}-{number}" if len(edges) > 2 else name, begin * 1e6 / rate_hz, end * 1e6 / rate_hz)  # noqa: PLR2004
            for number, (begin, end) in enumerate(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True), start=1)
        ]
        or [_Stretch(name, 0.0, whole_us)]
    )
    info = _info("ppk2", asked, {SOURCE: 0.0, VOLTS: asked.volts} | _limits(asked.uncertainty))
    trace = _trace(info, amperes * asked.volts, np.full(len(amperes), asked.volts), rate_hz, work)
    return _records(file, trace, work, time_of(file, None, asked.time_utc or said, asked))


def _unzipped(file: Path, content: bytes) -> tuple[Floats, npt.NDArray[np.bool_], float, str]:
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            facts = json.loads(archive.read("metadata.json"))["metadata"]
            if archive.getinfo("session.raw").file_size > 100 * len(content) + (1 << 28):
                raise wrong(file, None, "session.raw is too large")
            raw = archive.read("session.raw")
        rate_hz = float(facts["samplesPerSecond"])
        start_s = float(facts.get("startSystemTime", 0)) / 1e3
        if len(raw) % _FRAME.itemsize or not 1 <= rate_hz <= 1e6:  # noqa: PLR2004 - samples a second
            raise ValueError(f"{len(raw)} bytes of {_FRAME.itemsize} a sample, {rate_hz:g} a second")  # noqa: TRY301
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError) as error:
        raise wrong(file, None, f"it is no recording of Power Profiler's: {error}") from error
    frames = np.frombuffer(raw, dtype=_FRAME)
    said = datetime.fromtimestamp(start_s, UTC).isoformat(timespec="seconds") if start_s else ""
    return frames["ua"].astype(np.float64) * 1e-6, (frames["bits"] & _D0) == _HIGH, rate_hz, said


def _table(file: Path, content: bytes) -> tuple[Floats, npt.NDArray[np.bool_], float, str]:
    lines = content.decode(errors="replace").splitlines()
    columns = [name.strip() for name in lines[0].split(",")] if lines else []
    if _CURRENT not in columns or _TIMESTAMP not in columns:
        raise wrong(
            file, 1, f"it has no columns {_TIMESTAMP} and {_CURRENT}", hint="Power Profiler: save, CSV, with both"
        )
    time_at, current_at = columns.index(_TIMESTAMP), columns.index(_CURRENT)
    digital_at = next((columns.index(name) for name in ("D0", "D0-D7") if name in columns), None)
    times_ms: list[float] = []
    currents: list[float] = []
    high: list[bool] = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split(",")
        try:
            times_ms.append(float(cells[time_at]))
            currents.append(float(cells[current_at]) * 1e-6)
            high.append(digital_at is not None and cells[digital_at].strip().startswith("1"))
        except (ValueError, IndexError) as error:
            raise wrong(file, number, f"it is no sample: {line[:80]!r}") from error
    steps = np.diff(times_ms)
    if len(steps) and (not (steps > 0).all() or steps.max() > 1.5 * np.median(steps)):
        line = int(np.argmax((steps <= 0) | (steps > 1.5 * np.median(steps)))) + 3
        raise wrong(file, line, "its samples are not evenly spaced: some are missing", hint="export it again")
    rate_hz = 1e3 / float(np.median(steps)) if len(steps) else _RATE_HZ
    return np.array(currents), np.array(high, dtype=bool), rate_hz, ""


def read_jls(file: Path, asked: Asked) -> Iterator[Record]:
    """A window for each pair of annotations: texts `Swork`, `Ework`, or Joulescope's dual markers 1a, 1b."""
    from pyjls import Reader  # noqa: PLC0415 - the extra's

    content_of(file)  # it can be read, and is not too large
    try:
        reader: Any = Reader(str(file))
    except (RuntimeError, OSError) as error:
        raise wrong(file, None, f"it is no JLS file: {error}") from error
    with reader:
        signals = {signal.name: signal for signal in reader.signals.values() if signal.length}
        if missing := [name for name in ("current", "voltage") if name not in signals]:
            raise wrong(file, None, f"it has no signal {' and '.join(missing)}")
        current, voltage = signals["current"], signals["voltage"]
        rate_hz, length = float(current.sample_rate), min(current.length, voltage.length)
        amperes, volts = (reader.fsr(each.signal_id, 0, length).astype(np.float64) for each in (current, voltage))
        noted: list[tuple[int, str]] = []

        def note(at: int, _y: float, _kind: int, _group: int, data: object) -> None:
            noted.append((at, str(data)))

        for each in dict.fromkeys((current.signal_id, *(signal.signal_id for signal in signals.values()))):
            if not noted:  # the marks of one signal are those of all
                reader.annotations(each, 0, note)
        stamp = reader.sample_id_to_timestamp(current.signal_id, 0)
    work = _noted(file, noted, rate_hz) or [_Stretch(asked.workload or file.stem, 0.0, length * 1e6 / rate_hz)]
    if asked.uncertainty is None:
        raise ConfigError(
            "a JLS file does not say how exact its instrument is", hint="--uncertainty 0.5: per cent, k=1"
        )
    said = datetime.fromtimestamp(_JLS_EPOCH_S + stamp / _JLS_SECOND, UTC).isoformat(timespec="seconds")
    info = _info("joulescope", asked, _limits(asked.uncertainty))
    trace = _trace(info, amperes * volts, volts, rate_hz, work)
    return _records(file, trace, work, time_of(file, None, asked.time_utc or said, asked))


def _noted(file: Path, noted: Sequence[tuple[int, str]], rate_hz: float) -> list[_Stretch]:
    opened: dict[str, int] = {}
    work: list[_Stretch] = []
    for at, text in sorted(noted):
        found = _PAIR.fullmatch(text)
        if found is None:
            continue
        name = found["text"] if found["s"] else f"marker-{found['marker']}"
        if found["s"] == "S" or found["side"] == "a":
            opened[name] = at
        elif name in opened:
            work.append(_Stretch(name.strip(), opened.pop(name) * 1e6 / rate_hz, at * 1e6 / rate_hz))
        else:
            raise wrong(file, None, f"the annotation {text!r} ends what has not begun")
    if opened:
        raise wrong(file, None, f"the annotation of {next(iter(opened))!r} has no end")
    return work


def _info(instrument: str, asked: Asked, settings: dict[str, float]) -> PlainInfo:
    return PlainInfo(
        instrument=instrument,
        firmware="",
        serial_number="",
        rate_hz=_RATE_HZ,
        measures_voltage=True,
        simulated=asked.simulated,
        settings=settings,
    )


def _limits(uncertainty: float | None) -> dict[str, float]:
    if uncertainty is None:
        return {}
    return {AMPERES_SHARE: uncertainty * math.sqrt(3), AMPERES_OFFSET: 0.0, VOLTS_SHARE: 0.0, VOLTS_OFFSET: 0.0}


def _trace(info: PlainInfo, watts: Floats, volts: Floats, rate_hz: float, work: Sequence[_Stretch]) -> PlainTrace:
    """Ticks of a millisecond from samples; a tick with a sample that is NaN is missing."""
    places = np.floor(np.arange(len(watts)) * (_RATE_HZ / rate_hz) + 1e-9).astype(np.int64)
    counts = np.bincount(places)
    means = [np.bincount(places, values) / np.maximum(counts, 1) for values in (watts, volts)]
    ticks = np.flatnonzero((counts > 0) & np.isfinite(means[0]))
    none = np.empty(0, dtype=np.int64)
    marks = [
        Mark(round(at_us), f"{side}{number}", MarkSource.RISING)
        for number, each in enumerate(work, start=1)
        for side, at_us in (("S", each.start_us), ("E", each.stop_us))
    ]
    return PlainTrace(
        info=info,
        ticks=ticks,
        times_us=ticks * (1_000_000 // _RATE_HZ),
        checkpoint_ticks=none,
        checkpoint_missed=none,
        marks=tuple(sorted(marks, key=lambda mark: mark.time_us)),
        missed=len(counts) - len(ticks),
        lost=0,
        energy_nj=np.round(means[0][ticks] * 1e9 / _RATE_HZ).astype(np.int64),
        voltage_uv=np.round(means[1][ticks] * 1e6).astype(np.int64),
        clipped_samples=np.zeros(len(ticks), dtype=np.uint8),
        checkpoint_nj=none,
    )


def _records(file: Path, trace: PlainTrace, work: Sequence[_Stretch], time_utc: str) -> Iterator[Record]:
    before_us = 0.0
    for number, each in enumerate(work, start=1):
        window = Window(each.start_us, each.stop_us)
        idle = Window(max(before_us, each.start_us - _IDLE_US), each.start_us)
        rests = idle.stop_us - idle.start_us >= _LEAST_IDLE_US
        before_us = each.stop_us
        where = f"{file}, window {number} ({each.name})"
        try:
            found = energy(trace, window, idle if rests else window)
        except MeasurementInvalid as error:
            raise wrong(file, None, f"window {number} ({each.name}): {'; '.join(error.reasons)}") from error
        figures = {Metric.DURATION: Stated(window.duration_s)}
        if not rests:  # only what needs no idle power
            figures |= {
                Metric.OPERATION_ENERGY: Stated(found.gross_mj.value, found.gross_mj.uncertainty),
                Metric.POWER: Stated(found.mean_power_w.value, found.mean_power_w.uncertainty),
            }
        yield Record(
            where=where,
            time_utc=time_utc,
            work=each.name,
            figures=figures,
            energy=found if rests else None,
            window=window,
            trace=trace if number == 1 else None,
        )
