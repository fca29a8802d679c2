"""The meter's own self-test, in words."""

from __future__ import annotations

from dataclasses import dataclass

from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.model import Ina219Info


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Failures that the meter found (empty if all is well), and one reading."""

    failures: tuple[str, ...]
    shunt_mv: float
    bus_v: float


def self_test(client: MeterClient) -> SelfTest:
    bits, shunt_raw, bus_raw = client.command(MeterCommand.SELF_TEST)
    info: Ina219Info = client.receiver.wait_info().info
    return SelfTest(
        commands.self_test_failures(bits), shunt_raw * info.shunt_lsb_uv / 1e3, bus_raw * info.bus_lsb_mv / 1e3
    )
