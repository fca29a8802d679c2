"""A powercap zone whose counter is fed with a known power, as the kernel shows it: files in a folder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fsjoule.virtual.instruments.emulator import VOLTS, Amperes, Emulator

_ZONE: Final = "intel-rapl:0"
# As a real one: Intel SDM, volume 3B, 15.10.3.
_UPDATE_S: Final = 0.001
_DIGITS: Final = 12  # one write of the same length each time: a reader never sees half a number


@contextmanager
def zone(
    folder: Path, name: str, watts: Callable[[float], float], *, range_uj: int = 262_143_328_850, start_uj: int = 0
) -> Generator[Path]:
    """Keep a zone up while the body runs: it counts `watts`, a function of the monotonic clock, modulo its range."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "name").write_text("package-0\n")
    (path / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (path / "simulated").touch()
    file = os.open(path / "energy_uj", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"%0*d\n" % (_DIGITS, start_uj), 0)
    ended = threading.Event()

    def count() -> None:
        last_s = time.monotonic()
        energy_uj = float(start_uj)
        while not ended.wait(_UPDATE_S):
            now_s = time.monotonic()
            energy_uj += watts((now_s + last_s) / 2) * (now_s - last_s) * 1e6
            last_s = now_s
            os.pwrite(file, b"%0*d\n" % (_DIGITS, int(energy_uj) % range_uj), 0)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        ended.set()
        thread.join(timeout=5)
        os.close(file)


@contextmanager
def _serve(amperes: Amperes, beside: Path) -> Generator[str]:
    folder = beside.with_name(f"{beside.name}-zones")
    with zone(folder, _ZONE, lambda seconds: VOLTS * amperes(seconds)) as path:
        yield f"powercap:{path}"


EMULATOR: Final = Emulator(serve=_serve)
