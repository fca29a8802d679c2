"""Small parts of the virtual lab, without its processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fsjoule.host.process_ref import ProcessRef
from fsjoule.virtual.lab.files import LabPaths, LabRecord
from fsjoule.virtual.lab.ser2net import on_loopback


def test_a_process_reference_is_not_fooled_by_a_reused_number() -> None:
    me = ProcessRef.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert not ProcessRef(me.pid, me.start_ticks + 1).alive()
    assert ProcessRef.of(2**22 + 1) is None


def test_a_record_survives_being_written_and_read(tmp_path: Path) -> None:
    paths = LabPaths(tmp_path / "labs" / "x")
    paths.make()
    record = LabRecord("x", "2026-01-01T00:00:00+00:00", "/dev/shm/fsjoule-x", "127.0.0.1:1", 2, "meter", "qemu")
    paths.write(record)
    assert paths.read() == record
    assert json.loads(paths.record.read_text())["schema"] == "fsjoule.lab/1"


def test_ser2net_is_told_to_listen_on_loopback() -> None:
    assert on_loopback(["-Y", "connection: &con01#  accepter: telnet(rfc2217,mode=server),tcp,4711", "-n"]) == [
        "-Y",
        "connection: &con01#  accepter: telnet(rfc2217,mode=server),tcp,127.0.0.1,4711",
        "-n",
    ]
