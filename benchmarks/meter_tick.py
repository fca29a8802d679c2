"""What a tick takes on the meter: the core's instructions on a Cortex-M4, counted in QEMU, and the time on the I2C bus.

Needs Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm; no Zephyr. QEMU counts instructions, not
cycles: the time assumes 1.5 cycles for each, for the flash is slower than the processor. What Zephyr's drivers and
threads take is not in it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Final

from common import show

from fsjoule.host import process
from fsjoule.host.paths import project_dir

_CLOCK_HZ: Final = 96e6
_CYCLES_PER_INSTRUCTION: Final = 1.5
_BUS_HZ: Final = 400e3
# START, address, register, repeated START, address, two bytes, STOP; and START, address, register, two bytes, STOP.
_READ_BITS: Final = 48
_WRITE_BITS: Final = 38
_CPU: Final = ("-mcpu=cortex-m4", "-mthumb")
_MACHINE: Final = ("-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native")
# Each instruction takes 2^10 ns: board.c counts on it.
_COUNTING: Final = ("-icount", "shift=10")


def main() -> None:
    """Build, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "meter_tick.elf"
        _build(program)
        done = process.run(["qemu-system-arm", *_MACHINE, *_COUNTING, "-kernel", program], timeout_s=120)
    lines = [line.rsplit(" ", 1) for line in done.stderr.decode().splitlines() + done.stdout.decode().splitlines()]
    result = _result([(name, int(value)) for name, value in lines])
    table = {name: _text(figures) for name, figures in result.items()}
    show("A tick on the Black Pill", result if arguments.json else table, as_json=arguments.json)


def _build(program: Path) -> None:
    meter, here = project_dir() / "meter", Path(__file__).parent / "cortex_m4"
    process.run(
        [
            *("arm-none-eabi-gcc", *_CPU, "-O2", "-std=c11", "-Wall", "-Wextra", "-ffreestanding"),
            *("-ffunction-sections", "-Wl,--gc-sections", "-nostartfiles", "-specs=nano.specs"),
            *("-I", meter / "lib/include", "-T", here / "link.ld", "-o", program),
            *sorted(here.glob("*.c")),
            *sorted((meter / "lib/src").glob("*.c")),
        ],
        timeout_s=120,
    )


def _result(said: list[tuple[str, int]]) -> dict[str, dict[str, float]]:
    """Three lines a kind of tick: its name with its instructions, its reads, its writes. What checks QEMU is first."""
    (check, nops), *rest = said
    if (check, nops) != ("thousand-nops", 1000):
        raise SystemExit(f"QEMU counts {nops} instructions where there are 1000: another version?")
    result: dict[str, dict[str, float]] = {}
    for (name, instructions), (_, reads), (_, writes) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        computing_us = instructions * _CYCLES_PER_INSTRUCTION / _CLOCK_HZ * 1e6
        bus_us = (reads * _READ_BITS + writes * _WRITE_BITS) / _BUS_HZ * 1e6
        result[name] = {
            "instructions": instructions,
            "computing_us": computing_us,
            "bus_us": bus_us,
            "together_us": computing_us + bus_us,
        }
    return result


def _text(figures: dict[str, float]) -> str:
    return (
        f"{figures['instructions']:6,.0f} instructions {figures['computing_us']:4.0f} us"
        f" + I2C {figures['bus_us']:4.0f} us = {figures['together_us']:4.0f} us"
    )


if __name__ == "__main__":
    main()
