"""The main job: each planned measurement of the chosen suite is one test.

pytest tests/bench --lg-env env/virtual.yaml --fs ext4,btrfs --kernel 6.1 --suite quick --repeat 3
"""

from __future__ import annotations

from fsjoule.errors import MeasurementInvalid
from fsjoule.model import Measurement


def test_measurement(measurement: Measurement) -> None:
    if not measurement.valid:
        raise MeasurementInvalid(measurement.slug, measurement.invalid_reasons)
