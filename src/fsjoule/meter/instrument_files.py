"""Instrument files: what is known of a meter beside what it stores itself, `SERIAL.toml`, in one folder for all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.files import write_file
from fsjoule.host.paths import meters_dir
from fsjoule.host.toml_lines import config_text, line_of, parse_toml, validated
from fsjoule.model.instrument_file import Accuracy, Calibrated, Certificate, InstrumentFile, RoomTemperature, Shunt

_HINT: Final = "docs/meter.md#instrument-files explains the file; fsjoule meter calibrate writes one"
_ABSOLUTE_ZERO_CELSIUS: Final = -273.15
_LIMITS: Final = {
    ("shunt", "ohm"): (0.0, 1000.0),
    ("shunt", "tolerance_percent"): (0.0, 100.0),
    ("shunt", "drift_ppm_per_kelvin"): (0.0, 10_000.0),
    ("accuracy", "volts_percent"): (0.0, 100.0),
    ("accuracy", "volts_offset"): (0.0, 1000.0),
    ("accuracy", "amperes_percent"): (0.0, 100.0),
    ("accuracy", "amperes_offset"): (0.0, 1000.0),
    ("room", "least_celsius"): (_ABSOLUTE_ZERO_CELSIUS, 200.0),
    ("room", "most_celsius"): (_ABSOLUTE_ZERO_CELSIUS, 200.0),
    ("calibration", "celsius"): (_ABSOLUTE_ZERO_CELSIUS, 200.0),
}
_KEYS: Final = {"serial_number": set[str]()} | {
    name: {each.name for each in fields(table)}
    for name, table in (
        *(("shunt", Shunt), ("accuracy", Accuracy), ("room", RoomTemperature)),
        *(("calibration", Calibrated), ("certificate", Certificate)),
    )
}
_COMMENTS: Final = {
    "shunt": "the resistor's value; its tolerance counts until the gain is calibrated, its drift always",
    "accuracy": "limits of the data sheet: percents of the reading, offsets in V and A",
    "room": "the temperatures at which the meter is used",
    "calibration": "when fsjoule meter calibrate ran last, and at which temperature",
    "certificate": "the reference's certificate, or the meter's own",
}


def file_of(serial_number: str) -> Path:
    """Where the meter's file is, or would be."""
    # A serial number comes from the meter, and must not lead out of the folder.
    return meters_dir() / f"{re.sub(r'[^A-Za-z0-9_-]', '_', serial_number)}.toml"


def read_instrument_file(serial_number: str) -> InstrumentFile | None:
    """The meter's file; None if it has none. Raises ConfigError with file and line."""
    path = file_of(serial_number)
    with suppress(OSError):  # told when it is read
        if not path.exists():
            return None
    text = config_text(path, "the instrument file", hint=_HINT)
    file = _parsed(text, path)
    if file.serial_number != serial_number:
        raise ConfigError(
            f"this is the file of the meter {file.serial_number}, but its name is of {serial_number}",
            file=path,
            line=line_of(text, ["serial_number"]),
            hint=_HINT,
        )
    return file


def write_instrument_file(file: InstrumentFile) -> Path:
    """Write or replace the meter's file, whole; returns where it is. Raises StorageError."""
    path = file_of(file.serial_number)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(_lines(file)).encode())
    except OSError as error:
        raise StorageError(f"the instrument file {path} cannot be written: {error.strerror}") from error
    return path


def _parsed(text: str, path: Path) -> InstrumentFile:
    document = parse_toml(text, path)
    # Pydantic would pass over unknown keys, which may be misspelt ones.
    for key, table in document.items():
        if key not in _KEYS:
            raise _wrong(f"unknown table or key {key!r}", text, path, key)
        for name in cast("dict[str, object]", table) if isinstance(table, dict) else ():
            if name not in _KEYS[key]:
                raise _wrong(f"unknown key {name!r} in [{key}]", text, path, key, name)
    file = validated(InstrumentFile, document, text, path, hint=_HINT)
    for (table, key), (least, most) in _LIMITS.items():
        value = getattr(getattr(file, table), key, None)
        if value is not None and not (least <= value <= most and math.isfinite(value)):
            raise _wrong(f"{table}.{key} = {value:g} is not from {least:g} to {most:g}", text, path, table, key)
    if file.shunt is not None and file.shunt.ohm == 0:
        raise _wrong("shunt.ohm = 0: a shunt has a resistance", text, path, "shunt", "ohm")
    if file.room.least_celsius > file.room.most_celsius:
        what = f"room.least_celsius = {file.room.least_celsius:g} is above most_celsius = {file.room.most_celsius:g}"
        raise _wrong(what, text, path, "room", "least_celsius")
    return file


def _wrong(what: str, text: str, path: Path, *key: str) -> ConfigError:
    return ConfigError(what, file=path, line=line_of(text, list(key)), hint=_HINT)


def _lines(file: InstrumentFile) -> Iterator[str]:
    yield "# An instrument file of fsjoule: docs/meter.md#instrument-files\n"
    yield f"serial_number = {_value(file.serial_number)}\n"
    for name, comment in _COMMENTS.items():
        table = getattr(file, name)
        if table is None:
            continue
        yield f"\n[{name}] # {comment}\n"
        for each in fields(table):
            if (value := getattr(table, each.name)) not in (None, ""):
                yield f"{each.name} = {_value(value)}\n"


def _value(value: Any) -> str:  # noqa: ANN401 - as TOML has it
    """JSON's text is TOML's, too; a date has no quotes."""
    return value.isoformat() if isinstance(value, date) else json.dumps(value, ensure_ascii=False)
