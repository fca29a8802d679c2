"""What is known of one meter, by its serial number, beside what it stores itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

# The resistor of the usual boards, and Vishay WSL, document 30100.
_USUAL_TOLERANCE_PERCENT: Final = 1.0
_USUAL_DRIFT_PPM: Final = 75.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shunt:
    """The resistor. `tolerance_percent` and `drift_ppm_per_kelvin` are limits, each +-."""

    ohm: float
    tolerance_percent: float = _USUAL_TOLERANCE_PERCENT
    drift_ppm_per_kelvin: float = _USUAL_DRIFT_PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The limits, each +-, that the data sheet of an instrument states which measures volts and amperes itself.

    Percents are of the reading, offsets in V and A.
    """

    volts_percent: float
    volts_offset: float
    amperes_percent: float
    amperes_offset: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomTemperature:
    """The temperatures at which the meter is used, in degrees Celsius."""

    least_celsius: float = 15.0
    most_celsius: float = 35.0

    def kelvin_from(self, celsius: float | None) -> float:
        """The largest distance from a temperature; from an unknown one within the room's."""
        if celsius is None:
            return self.most_celsius - self.least_celsius
        return max(abs(self.most_celsius - celsius), abs(self.least_celsius - celsius))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """When and at which temperature the meter was calibrated; None if it was not told."""

    made: date
    celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The reference's certificate, or the meter's own. It holds to the end of the day `expires`."""

    number: str
    issuer: str = ""
    expires: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentFile:
    """One meter's file, `SERIAL.toml`: with a `shunt` for fsjoule's own meter, with an `accuracy` for another.

    docs/meter.md explains it.
    """

    serial_number: str
    shunt: Shunt | None = None
    accuracy: Accuracy | None = None
    room: RoomTemperature = RoomTemperature()
    calibration: Calibrated | None = None
    certificate: Certificate | None = None

    def expired(self, today: date) -> str | None:
        """In words, that the certificate has expired."""
        if self.certificate is None or self.certificate.expires is None or today <= self.certificate.expires:
            return None
        return f"certificate {self.certificate.number} expired on {self.certificate.expires}"
