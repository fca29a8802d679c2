"""Checks of a document's values beyond types: valid times, possible sizes, names of bounded length.

They cover only values that fsjoule chooses or knows. Measured figures may be any finite number, and
`fsjoule.meter.energy.validity` judges them. Each check raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from fsjoule.host.inside import wrong_name
from fsjoule.host.plaintext import plain_line
from fsjoule.model import BoardStates, LabStep, Measurement, MeterInfo, PlainInfo, Run, Workload
from fsjoule.model.metrics import Metric

_LONGEST_ID: Final = 99
_LONGEST_NAME: Final = 1000
_LATEST_YEAR: Final = 9998
_LATEST_DATE_S: Final = 253_370_764_800  # the year 9999
_LATEST_MS: Final = 1000 * _LATEST_DATE_S
_MOST_REASONS: Final = 1000  # fsjoule writes some dozens
_FASTEST_HZ: Final = 1_000_000
_DEEPEST_STEP: Final = 64  # labgrid's own steps have some ten levels


def check_run(run: Run) -> None:
    plan = run.plan
    _refuse(_wrong_times(("started_utc", run.started_utc), ("finished_utc", run.finished_utc)))
    _refuse(_wrong_times(*(("resumed_utc", utc) for utc in run.resumed_utc)))
    if not 0 < len(run.run_id) <= _LONGEST_ID or plain_line(run.run_id) != run.run_id:
        raise ValueError(f"run_id: it is not a name of up to {_LONGEST_ID} characters")
    if not plan.kernels:
        raise ValueError("plan.kernels: there is no kernel")
    if len(run.measurements) > len(plan.entries):
        raise ValueError(f"measurements: {len(run.measurements)} of a plan with {len(plan.entries)} entries")
    _refuse(_too_long([plan.suite, *plan.filesystems, *plan.kernels, *run.boards, *run.versions, *run.phases_s]))
    _refuse(_too_long(kernel.label for kernel in run.kernels))
    for entry in plan.entries:
        _refuse(_negative(f"plan.entries.{entry.number}", number=entry.number, repetition=entry.repetition))
        _refuse(_too_long((entry.kernel, entry.filesystem, entry.suite, entry.storage)))
        _check_workload(entry.workload)
    for name, board in run.boards.items():
        sizes = {
            "cpus": board.cpus,
            "memory": board.memory_bytes,
            "storage": board.storage_bytes,
            "tick_hz": board.tick_hz,
        }
        _refuse(_negative(f"boards.{name}", **sizes))
        _refuse(_too_long((board.name, board.storage, board.kernel_release)))
    for fault in run.faults:
        _refuse(_wrong_times(("faults.started_utc", fault.started_utc), ("faults.ended_utc", fault.ended_utc)))
        check_steps(fault.steps)
    for place in run.places:
        _refuse(_too_long((place.lab.place, *place.phases_s)))
        _refuse(_negative(f"places.{place.lab.place}", held_s=place.held_s))
    for meter in (run.meter, *(place.meter for place in run.places)):
        if meter is not None:
            check_meter(meter)


def check_measurement(measurement: Measurement) -> None:
    m, series = measurement, measurement.series
    _refuse(_wrong_times(("started_utc", m.started_utc)))
    _refuse(_negative("the measurement", number=m.number, repetition=m.repetition, boot=m.boot))
    if why := wrong_name(f"{m.number:02d}-{m.slug}"):  # it names a folder
        raise ValueError(f"slug: {m.slug[:80]!r}: {why}")
    _refuse(_too_long((m.slug, m.kernel, m.place, series.suite, series.board, series.storage, *m.counts)))
    _refuse(_too_long((series.filesystem, series.title, series.workload, *series.make_options, *series.mount_options)))
    _check_workload(m.workload)
    _refuse(f"stated.{name[:80]}: it is no metric" for name in m.stated if name not in set(Metric))
    said = {"invalid_reasons": m.invalid_reasons, "notes": m.notes}
    if m.board_state is not None:
        said["board_state.ran"] = m.board_state.ran
        _check_states(m.board_state)
    if m.outcome is not None:
        said |= {"outcome.damaged": m.outcome.damaged, "outcome.messages": m.outcome.messages}
    _refuse(f"{name}: {len(texts)} are too many" for name, texts in said.items() if len(texts) > _MOST_REASONS)
    percentiles = {"latency": m.fio.latency_percentiles_ns, "fsync": m.fio.fsync_percentiles_ns} if m.fio else {}
    for kind, values in percentiles.items():
        for name in values:
            if not (name.isascii() and name.replace(".", "", 1).isdigit() and float(name) <= 100):  # noqa: PLR2004
                raise ValueError(f"fio.{kind}_percentiles_ns: {name[:80]!r} is not a percentile")


def _check_states(states: BoardStates) -> None:
    for state in (states.before, states.after):
        _refuse(_too_long((*state.governors, *state.governors.values(), *state.throttle_counts, state.hottest_zone)))
    wrong = (khz for at_khz_s in states.at_khz_s.values() for khz in at_khz_s if not re.fullmatch("[0-9]{1,9}", khz))
    _refuse(f"board_state.at_khz_s: {khz[:80]!r} is not a frequency in kHz" for khz in wrong)


def check_meter(info: MeterInfo) -> None:
    if not 0 < info.rate_hz <= _FASTEST_HZ:
        raise ValueError(f"meter.rate_hz: {info.rate_hz} samples/s is impossible")
    if isinstance(info, PlainInfo):
        _refuse(_too_long((info.instrument, *info.settings)))
        return
    positive = ("shunt_uohm", "shunt_lsb_uv", "bus_lsb_mv")
    _refuse(f"meter.{name}: {getattr(info, name):g} is not above 0" for name in positive if not getattr(info, name) > 0)
    dates = ("zero_date", "gain_date")
    calibration = info.calibration
    _refuse(f"meter.{name}: not a date" for name in dates if not 0 <= getattr(calibration, name) < _LATEST_DATE_S)


def check_steps(steps: Iterable[LabStep]) -> None:
    for step in steps:
        if not 0 < step.level <= _DEEPEST_STEP:
            raise ValueError(f"steps: a level of {step.level} is impossible")
        if not 0 <= step.started_utc_ms < _LATEST_MS or abs(step.duration_ms) >= _LATEST_MS:
            raise ValueError(f"steps: a time of {step.started_utc_ms} ms is impossible")


def wrong_time(utc: str) -> str | None:
    """Why a text is not a time with a time zone; None if it is one."""
    try:
        time = datetime.fromisoformat(utc)
        if time.tzinfo is None:
            return f"{utc[:80]!r} has no time zone"
        possible = 1970 <= time.astimezone(UTC).year <= _LATEST_YEAR  # noqa: PLR2004
    except (ValueError, OverflowError):
        possible = False
    return None if possible else f"{utc[:80]!r} is not a time"


def _check_workload(workload: Workload) -> None:
    numbers: dict[str, float] = {
        field.name: value
        for field in fields(workload)
        if isinstance(value := getattr(workload, field.name), int | float)
    }
    _refuse(_negative("workload", **numbers))
    least_one = ("block_size_bytes", "jobs", "depth", "files")
    _refuse(f"workload.{name}: it is below 1" for name in least_one if numbers.get(name, 1) < 1)


def _wrong_times(*times: tuple[str, str | None]) -> Iterator[str]:
    for name, utc in times:
        if utc is not None and (why := wrong_time(utc)):
            yield f"{name}: {why}"


def _negative(where: str, **numbers: float) -> Iterator[str]:
    return (f"{where}.{name}: {number:g} is below 0" for name, number in numbers.items() if number < 0)


def _too_long(names: Iterable[str]) -> Iterator[str]:
    return (f"{name[:40]!r}…: a name of {len(name)} characters" for name in names if len(name) > _LONGEST_NAME)


def _refuse(wrong: Iterable[str]) -> None:
    for one in wrong:
        raise ValueError(one)
