"""A dead meter's terminal is given to nobody else while the lab that had it lives."""

from __future__ import annotations

import os
import pty
from contextlib import ExitStack
from pathlib import Path

from meter_process import running

from fsjoule.virtual.lab import services
from fsjoule.virtual.lab.supervisor import HeldTerminals, remove_links

_LOAD = ("--load", "5.0,0.25")


def _terminals(stack: ExitStack, count: int) -> set[Path]:
    """New terminals, the lowest free numbers first."""
    paths: set[Path] = set()
    for _ in range(count):
        for each in (master_and_slave := pty.openpty()):
            stack.callback(os.close, each)
        paths.add(Path(os.ttyname(master_and_slave[1])))
    return paths


def test_the_number_of_a_killed_meters_terminal_stays_taken(tmp_path: Path) -> None:
    held = HeldTerminals()
    with ExitStack() as stack:
        meter = stack.enter_context(running(services.simulator(), tmp_path, *_LOAD))
        had = {meter.stream.readlink(), meter.marks.readlink()}
        reader = stack.enter_context(meter.reader())
        reader.read_samples(100)
        held.hold(meter.process.pid)
        meter.process.kill()
        meter.process.wait(30)
        assert not had & _terminals(stack, 40), "given away before anybody could notice the death"
        gone = held.hang_up(meter.process.pid)
        assert set(gone) == had
        while os.read(reader.fd, 65536):  # what was sent before the death, then the end
            pass
        assert not any(path.exists() for path in had)
        assert not had & _terminals(stack, 40), "given away while the lab lives"
        remove_links(tmp_path, gone)
        assert not meter.stream.is_symlink()
        assert not meter.marks.is_symlink()
    held.close()


def test_other_links_stay(tmp_path: Path) -> None:
    (tmp_path / "terminal").symlink_to("/dev/null")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    remove_links(tmp_path, [])
    assert {path.name for path in tmp_path.iterdir()} == {"terminal", "file"}
