"""Warnings about a meter, in words, from its status. Pure."""

from __future__ import annotations

import math
from datetime import date
from typing import Final

from fsjoule.meter.protocol.frames import InfoFrame
from fsjoule.model import Ina219Info, MeterCalibration, MeterInfo, MeterStatus, ResetCause
from fsjoule.model.labels import counted

_RESETS: Final = {
    ResetCause.WATCHDOG: "its watchdog has reset it: the firmware hung",
    ResetCause.BROWN_OUT: "its supply broke down and reset it",
}
_U32_MODULUS: Final = 1 << 32
_SAME_OHM: Final = 1e-5


def notices(frame: InfoFrame, today: date) -> list[str]:
    """Everything that is wrong with a meter, in words."""
    return [
        *complaints(frame.status),
        *mark_line_notices(frame.status),
        *file_notices(frame.info, today),
        *uncalibrated(frame.info.calibration),
    ]


def complaints(status: MeterStatus) -> list[str]:
    """Everything that is wrong with a meter's state, whether it is calibrated or not."""
    texts = [_RESETS[status.reset_cause]] if status.reset_cause in _RESETS else []
    if status.i2c_faults:
        texts.append(f"{counted(status.i2c_faults, 'failed transfer')} to the chip since power-up: check its wires")
    if status.frames_dropped:
        texts.append(f"{counted(status.frames_dropped, 'frame')} dropped since power-up: the host reads too slowly")
    if status.inputs.events_lost:
        lost = counted(status.inputs.events_lost, "byte or edge", "bytes or edges")
        texts.append(
            f"{lost} lost since power-up, its queue was full: does the mark line carry more than marks, or noise?"
        )
    if status.settings_damaged:
        texts.append("its saved settings were damaged and not used: set them again, then fsjoule meter set --save")
    if status.unsaved:
        texts.append("its settings are not saved and are lost with its power: fsjoule meter set --save")
    if not status.sampling:
        texts.append("it is stopped and takes no samples: fsjoule meter set --start")
    return texts


def mark_line_notices(status: MeterStatus) -> list[str]:
    """What was damaged on the mark line since power-up. A board that is switched on or off may cause some of it."""
    inputs = status.inputs
    texts: list[str] = []
    if inputs.marks_damaged:
        texts.append(
            f"{counted(inputs.marks_damaged, 'line')} of the mark line damaged since power-up: check its wire, "
            "the common ground, and 3.3 V on both sides"
        )
    if inputs.mark_framing or inputs.mark_noise:
        both = counted(inputs.mark_framing + inputs.mark_noise, "framing or noise error")
        texts.append(
            f"{both} on the mark line since power-up: some are normal where a board is switched on; else as above"
        )
    if inputs.mark_overruns:
        texts.append(
            f"{counted(inputs.mark_overruns, 'overrun')} on the mark line since power-up: the meter took bytes "
            "too late; report it, with its firmware and rate"
        )
    return texts


def uncalibrated(calibration: MeterCalibration) -> list[str]:
    """What a meter has not been calibrated for."""
    dates = {"zero": calibration.zero_date, "gain": calibration.gain_date}
    missing = [name for name, date in dates.items() if not date]
    why = f"not calibrated yet: {', '.join(missing)}; the data sheets' limits apply (fsjoule meter calibrate)"
    return [why] if missing else []


def file_notices(meter: MeterInfo, today: date) -> list[str]:
    """What is wrong with a meter's instrument file."""
    if not isinstance(meter, Ina219Info) or meter.file is None:
        return []
    texts: list[str] = []
    if certificate := meter.file.expired(today):
        texts.append(f"the meter's {certificate}: its uncertainty is that of before; calibrate it anew")
    set_ohm = meter.shunt_uohm * 1e-6
    told_ohm = set_ohm if meter.file.shunt is None else meter.file.shunt.ohm
    if not math.isclose(told_ohm, set_ohm, rel_tol=_SAME_OHM):
        texts.append(
            f"the meter counts with a shunt of {set_ohm:g} Ohm, its instrument file says {told_ohm:g} Ohm: joules may "
            "be wrong by the ratio; fsjoule meter set --shunt, or correct the file"
        )
    return texts


def news(before: MeterStatus | None, now: MeterStatus) -> list[str]:
    """Everything that has gone wrong since the last info frame; `before` is None for the first frame."""
    if before is None:
        return [_RESETS[now.reset_cause]] if now.reset_cause in _RESETS else []
    faults = (now.i2c_faults - before.i2c_faults) % _U32_MODULUS
    dropped = (now.frames_dropped - before.frames_dropped) % _U32_MODULUS
    texts = [f"{counted(faults, 'failed transfer')} to the chip"] if 0 < faults < _U32_MODULUS // 2 else []
    if 0 < dropped < _U32_MODULUS // 2:
        texts.append(f"{counted(dropped, 'frame')} dropped: the host reads too slowly")
    lost = (now.inputs.events_lost - before.inputs.events_lost) % _U32_MODULUS
    damaged = (now.inputs.marks_damaged - before.inputs.marks_damaged) % _U32_MODULUS
    if 0 < lost < _U32_MODULUS // 2:
        texts.append(f"{counted(lost, 'byte or edge', 'bytes or edges')} lost: its queue was full")
    if 0 < damaged < _U32_MODULUS // 2:
        texts.append(f"{counted(damaged, 'line')} of the mark line damaged")
    return texts
