"""An iiod with power monitors behind it, over a TCP socket: its text protocol, as `HELP` of an iiod 0.24 lists it.

An answer is a line with a number: 0 or a length, or a negative error of errno.h. The value of an attribute follows with
its length, a NUL and a newline.
"""

from __future__ import annotations

import errno
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fsjoule.virtual.instruments.emulator import VOLTS, Amperes, Emulator
from fsjoule.virtual.instruments.terminal import served

# That of libiio's own XML; its library checks it.
_DTD = (
    "<!DOCTYPE context [<!ELEMENT context (device | context-attribute)*><!ELEMENT context-attribute EMPTY>"
    "<!ELEMENT device (channel | attribute)*><!ELEMENT channel (attribute)*><!ELEMENT attribute EMPTY>"
    "<!ATTLIST context name CDATA #REQUIRED description CDATA #IMPLIED>"
    "<!ATTLIST context-attribute name CDATA #REQUIRED value CDATA #REQUIRED>"
    "<!ATTLIST device id CDATA #REQUIRED name CDATA #IMPLIED>"
    "<!ATTLIST channel id CDATA #REQUIRED type (input|output) #REQUIRED name CDATA #IMPLIED>"
    "<!ATTLIST attribute name CDATA #REQUIRED filename CDATA #IMPLIED>]>"
)

Value = str | Callable[[], str]


@dataclass
class IioDevice:
    """A device: attributes of its own, and of each channel."""

    id: str
    name: str
    channels: Mapping[str, Mapping[str, Value]]
    attributes: Mapping[str, Value] = field(default_factory=dict[str, Value])

    def xml(self) -> str:
        channels = "".join(
            f'<channel id="{name}" type="input">'
            + "".join(f'<attribute name="{each}" filename="in_{name}_{each}" />' for each in attributes)
            + "</channel>"
            for name, attributes in self.channels.items()
        )
        own = "".join(f'<attribute name="{each}" />' for each in self.attributes)
        return f'<device id="{self.id}" name="{self.name}">{channels}{own}</device>'


def ina226(
    amperes: Callable[[float], float], *, volts: float = 5.0, ohm: float = 0.1, number: int = 0, turn_s: float = 8.8e-3
) -> IioDevice:
    """An INA226 as the driver ina2xx-adc shows it. `amperes` is the load by the monotonic clock.

    A reading is the mean over the last whole turn, in the chip's steps.
    """

    def shunt() -> str:
        end_s = time.monotonic() // turn_s * turn_s
        parts = [amperes(end_s - turn_s * (part + 0.5) / 8) for part in range(8)]
        return str(max(-32768, min(32767, round(sum(parts) / 8 * ohm / 2.5e-6))))

    def current() -> str:
        return shunt()  # with the calibration that the driver sets, in steps of 2.5 uV over the resistor

    def power() -> str:
        return str(int(int(shunt()) * round(volts / 1.25e-3) / 20000))

    step_ma = 2.5e-3 / ohm
    return IioDevice(
        f"iio:device{number}",
        "ina226",
        {
            "voltage0": {"raw": shunt, "scale": "0.002500000", "integration_time": "0.001100"},
            "voltage1": {"raw": str(round(volts / 1.25e-3)), "scale": "1.250000000", "integration_time": "0.001100"},
            "power2": {"raw": power, "scale": f"{25 * step_ma:.9f}"},
            "current3": {"raw": current, "scale": f"{step_ma:.9f}"},
        },
        {
            "in_oversampling_ratio": "4",
            "in_sampling_frequency": str(round(1 / turn_s)),
            "in_shunt_resistor": f"{ohm:.6f}",
        },
    )


def ina228(watts: Callable[[float], float], *, volts: float = 5.0) -> IioDevice:
    """An INA228 as hwmon's driver ina238 shows it; libiio shows hwmon's devices beside those of IIO."""
    return IioDevice(
        "hwmon0",
        "ina228",
        {
            "in1": {"input": str(round(volts * 1e3))},
            "curr1": {"input": lambda: str(round(watts(time.monotonic()) / volts * 1e3))},
            "power1": {"input": lambda: str(round(watts(time.monotonic()) * 1e6))},
        },
        {"shunt_resistor": "15000"},
    )


@dataclass
class Iiod:
    """What runs. `gone`: it does not answer any more; `answers` are others than the devices', by command."""

    devices: list[IioDevice]
    port: int = 0
    gone: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, bytes] = field(default_factory=dict[str, bytes])
    commands: list[str] = field(default_factory=list[str])
    simulated: bool = True

    @property
    def uri(self) -> str:
        return f"ip:127.0.0.1:{self.port}"

    def answer(self, command: str) -> bytes:
        self.commands.append(command)
        if command in self.answers:
            return self.answers[command]
        match command.split():
            case ["VERSION"]:
                return b"0.24.v0.24  \n"
            case ["TIMEOUT", _]:
                return b"0\n"
            case ["PRINT"]:
                xml = self._xml()
                return f"{len(xml)}\n{xml}\n".encode()
            case ["READ", device, *where]:
                return _value(self._read(device, where))
            case _:  # ZPRINT, too: a compressed context
                return f"{-errno.EINVAL}\n".encode()

    def _read(self, wanted: str, where: list[str]) -> Value | None:
        device = next(each for each in self.devices if each.id == wanted)
        attributes = device.channels[where[1]] if where[0] == "INPUT" else device.attributes
        return attributes.get(where[-1])

    def _xml(self) -> str:
        simulated = '<context-attribute name="fsjoule,simulated" value="1" />' if self.simulated else ""
        return (
            f'<?xml version="1.0" encoding="utf-8"?>{_DTD}<context name="network" description="an emulated iiod" >'
            f'<context-attribute name="hw_serial" value="SIM-IIO-1" />{simulated}'
            + "".join(device.xml() for device in self.devices)
            + "</context>"
        )


def _value(value: Value | None) -> bytes:
    if value is None:
        return f"{-errno.ENOENT}\n".encode()
    content = (value if isinstance(value, str) else value()).encode() + b"\0"
    return b"%d\n%s\n" % (len(content), content)


@contextmanager
def iiod(*devices: IioDevice, simulated: bool = True) -> Generator[Iiod]:
    """A running iiod on a free port of this computer."""
    emulated = Iiod(list(devices), simulated=simulated)

    class IioConversation(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for line in self.rfile:
                if emulated.gone.is_set() or line.strip() == b"EXIT":
                    return
                self.wfile.write(emulated.answer(line.decode().strip()))

    with served(IioConversation) as emulated.port:
        yield emulated


@contextmanager
def _serve(amperes: Amperes, _beside: Path) -> Generator[str]:
    with iiod(ina226(amperes, volts=VOLTS)) as server:
        yield f"iio:{server.uri}/ina226"


EMULATOR: Final = Emulator(serve=_serve)
