"""What a meter's status means to whoever reads its figures. Pure."""

from __future__ import annotations

from typing import Final

from fsjoule.meter.protocol.frames import InfoFrame
from fsjoule.model import MeterStatus, ResetCause

_RESETS: Final = {
    ResetCause.WATCHDOG: "its watchdog has reset it: the firmware stood still",
    ResetCause.BROWN_OUT: "its supply broke down and reset it",
}
_U32_MODULUS: Final = 1 << 32


def notices(frame: InfoFrame) -> list[str]:
    """What is not as it should be with a meter, in words; nothing for one that is well."""
    status, calibration = frame.status, frame.info.calibration
    found = [_RESETS[status.reset_cause]] if status.reset_cause in _RESETS else []
    if status.i2c_faults:
        found.append(f"{status.i2c_faults} transfers to the INA219 have failed since power-up: check its wires")
    if status.frames_dropped:
        found.append(f"{status.frames_dropped} frames found no room on the line since power-up: the host reads slowly")
    if status.settings_damaged:
        found.append("its saved settings were damaged and not used: set them anew, then fsjoule meter set --save")
    if status.unsaved:
        found.append("its settings are not saved: they end with its power, or fsjoule meter set --save")
    if not status.sampling:
        found.append("it is stopped and takes no samples: fsjoule meter set --start")
    dates = {"zero": calibration.zero_date, "gain": calibration.gain_date}
    if missing := [name for name, date in dates.items() if not date]:
        found.append(
            f"not calibrated yet: {', '.join(missing)}; the data sheets' limits hold (fsjoule meter calibrate)"
        )
    return found


def news(before: MeterStatus | None, now: MeterStatus) -> list[str]:
    """What has gone wrong with a meter since its last info frame; `before` is None for the first one."""
    if before is None:
        return [_RESETS[now.reset_cause]] if now.reset_cause in _RESETS else []
    faults = (now.i2c_faults - before.i2c_faults) % _U32_MODULUS
    dropped = (now.frames_dropped - before.frames_dropped) % _U32_MODULUS
    found = [f"{faults} transfers to the INA219 failed"] if 0 < faults < _U32_MODULUS // 2 else []
    if 0 < dropped < _U32_MODULUS // 2:
        found.append(f"{dropped} frames found no room on the line")
    return found
