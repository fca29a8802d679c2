"""Small parts of the virtual lab, without its processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fsjoule.errors import PlaceHeldError
from fsjoule.host.paths import place_file
from fsjoule.host.process_ref import ProcessRef
from fsjoule.lab.notes import RUN, NoteKind, one_run_only
from fsjoule.virtual.lab import services
from fsjoule.virtual.lab.files import LabPaths, LabRecord
from fsjoule.virtual.lab.lab import others_with
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
    assert json.loads(paths.record.read_text())["schema"] == "fsjoule.virtual-lab/1"


def test_a_lab_is_used_by_a_run_that_holds_the_note_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    record = LabRecord("x", "2026-01-01T00:00:00+00:00", "/dev/shm/fsjoule-x", "127.0.0.1:1", 2, "meter", "qemu")
    with one_run_only(record.coordinator, record.boards[0].place):
        run = os.getpid()
        assert others_with(record) is None
        monkeypatch.setattr(os, "getpid", lambda: run + 1)  # another process looks
        assert f"is used by a run, process {run}" in (others_with(record) or "")


def test_who_waits_for_a_board_reads_which_run_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on several boards has a process for each; to end one of them would leave the others measuring."""
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    with one_run_only("lab:20408", "rack") as note:
        for run in (0, 4711):
            token = RUN.set(run)
            note.left = None
            note.write(acquired=run == 0)
            RUN.reset(token)
            with pytest.raises(PlaceHeldError) as caught, one_run_only("lab:20408", "rack", wait_s=0.0):
                pass
            named = run or os.getpid()
            assert f"another run of yours on this computer, process {named} (" in caught.value.what
            assert (caught.value.hint or "").endswith(f"or end it: kill {named}")


def test_a_place_with_a_slash_has_one_file_in_the_folder_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    assert place_file(NoteKind.RUN, "lab:20408", "rack/1") == tmp_path / "places" / "lab:20408-rack_1"
    with one_run_only("lab:20408", "rack/1"):
        assert place_file("places", "lab:20408", "rack/1").is_file()


def test_ser2net_is_told_to_listen_on_loopback() -> None:
    assert on_loopback(["-Y", "connection: &con01#  accepter: telnet(rfc2217,mode=server),tcp,4711", "-n"]) == [
        "-Y",
        "connection: &con01#  accepter: telnet(rfc2217,mode=server),tcp,127.0.0.1,4711",
        "-n",
    ]


def test_ports_are_free_and_the_kernel_gives_them_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, other = services.free_ports(2)
    assert max(port, other) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert port != other
    only = tmp_path / "ip_local_port_range"
    only.write_text(f"{port + 1}\t60999")
    monkeypatch.setattr(services, "_LOWEST_PORT", port)
    monkeypatch.setattr(services, "_KERNELS_PORTS", only)
    assert services.free_ports(1) == [port]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        assert services.free_ports(1)[0] not in {0, port}


def test_ser2net_does_not_start_on_a_port_that_somebody_else_has_taken() -> None:
    command = [sys.executable, "-m", "fsjoule.virtual.lab.ser2net", "/bin/echo"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        argument = f"connection: &con01#  accepter: telnet(rfc2217,mode=server),tcp,{port}"
        done = subprocess.run([*command, argument], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"ser2net cannot listen on port {port}: Address already in use\n"
    done = subprocess.run([*command, argument], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{argument.replace('tcp,', 'tcp,127.0.0.1,')}\n")
