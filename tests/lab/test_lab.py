"""The virtual lab with its real processes: what stock labgrid sees of it, and that nothing of it outlives it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from interruptible import interruptible
from lab_leftovers import assert_nothing_left, processes
from waiting import wait_for

from fsjoule.errors import ConfigError, LabError, MissingToolError
from fsjoule.host import process
from fsjoule.host.process_ref import wait_gone
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths, LabRecord, lab_names
from fsjoule.virtual.lab.health import PlaceFaults

_LIMIT_S = 60.0


def _record(name: str = "virtual") -> LabRecord:
    record = LabPaths.of(name).read()
    assert record is not None
    return record


def _client(handle: lab.LabHandle, *arguments: str, check: bool = True) -> str:
    """What `labgrid-client` prints, run as a user would after `fsjoule lab env`."""
    client = Path(sys.executable).parent / "labgrid-client"
    done = process.run([client, *arguments], timeout_s=_LIMIT_S, env=handle.environment, check=check)
    return (done.stdout + done.stderr).decode()


@pytest.fixture(scope="module")
def running(module_state: Path) -> Generator[lab.LabHandle]:
    """A lab with its place acquired."""
    handle = lab.up("virtual", owner_pid=os.getpid())
    _client(handle, "-p", "virtual", "acquire")
    yield handle
    devices = Path(_record().devices)
    assert lab.down("virtual")
    assert_nothing_left(module_state, devices)


# ------------------------------------------------------------------------------------------ what stock labgrid sees


def test_places_lists_the_place(running: lab.LabHandle) -> None:
    assert _client(running, "places").startswith("virtual ")


def test_status_tells_who_holds_the_place_and_what_the_board_does(running: lab.LabHandle) -> None:
    status = lab.status("virtual")
    assert status.state == "up"
    assert status.holder is not None
    assert "/" in status.holder
    assert status.board is not None
    assert status.board["power"] == "off"
    assert {service.name for service in status.services} == {"coordinator", "sshd", "board", "meter", "exporter"}
    assert f"held by {status.holder}" in status.text()
    assert lab.environment("virtual") == running.environment


def test_power_of_the_stock_client_switches_the_board(running: lab.LabHandle) -> None:
    _client(running, "-p", "virtual", "power", "cycle", "--delay", "0.1")
    assert _client(running, "-p", "virtual", "power", "get").strip().endswith("is on")
    _client(running, "-p", "virtual", "power", "off")
    assert _client(running, "-p", "virtual", "power", "get").strip().endswith("is off")


def test_sd_mux_and_write_image_of_the_stock_client(running: lab.LabHandle, tmp_path: Path) -> None:
    image = tmp_path / "image.bin"
    image.write_bytes(os.urandom(2 * 1024 * 1024))
    _client(running, "-p", "virtual", "sd-mux", "host")
    _client(running, "-p", "virtual", "write-image", str(image))
    _client(running, "-p", "virtual", "sd-mux", "dut")
    assert _client(running, "-p", "virtual", "sd-mux", "get").strip() == "dut"
    with LabPaths.of("virtual").card.open("rb") as card:
        assert card.read(2 * 1024 * 1024) == image.read_bytes()
        assert card.seek(0, os.SEEK_END) == 1024 * 1024 * 1024


def test_a_write_without_the_card_fails_and_says_so(running: lab.LabHandle, tmp_path: Path) -> None:
    image = tmp_path / "image.bin"
    image.write_bytes(b"x" * 4096)
    assert "Timeout while waiting for medium" in _client(
        running, "-p", "virtual", "write-image", str(image), check=False
    )


def test_console_of_the_stock_client_shows_what_the_board_says(running: lab.LabHandle) -> None:
    """The board has an empty card: its boot ROM says so."""
    environment = {**os.environ, **running.environment}
    client = str(Path(sys.executable).parent / "labgrid-client")
    master, slave = pty.openpty()
    said = bytearray()

    def read() -> None:
        try:
            while chunk := os.read(master, 4096):
                said.extend(chunk)
        except OSError:  # the other side is closed
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with subprocess.Popen(
        [client, "-p", "virtual", "console"], stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as console:
        os.close(slave)
        try:
            # microcom says so when it is connected, and telnet, where microcom is not installed, too.
            wait_for(lambda: b"connected to" in said.lower(), f"no connection: {said.decode(errors='replace')}")
            _client(running, "-p", "virtual", "power", "on")
            wait_for(lambda: b"nothing to boot" in said, f"not on the console: {said.decode(errors='replace')}")
        finally:
            console.terminate()
    _client(running, "-p", "virtual", "power", "off")
    reader.join(10)
    os.close(master)


def test_the_users_ssh_directory_is_not_touched(running: lab.LabHandle) -> None:
    directory = Path.home() / ".ssh"
    before = sorted((str(p), p.stat().st_mtime_ns) for p in [directory, *directory.glob("*")] if p.exists())
    _client(running, "-p", "virtual", "sd-mux", "get")
    after = sorted((str(p), p.stat().st_mtime_ns) for p in [directory, *directory.glob("*")] if p.exists())
    assert before == after


def test_everything_listens_on_loopback_only(running: lab.LabHandle, module_state: Path) -> None:
    pids = {line.split()[0] for line in processes(module_state)}
    inodes = {str(link.readlink()) for pid in pids for link in Path(f"/proc/{pid}/fd").glob("*") if link.is_symlink()}
    listening, loopback = "0A", ("0100007F:", "0000000000000000FFFF00000100007F:")  # 127.0.0.1, also as IPv6 has it
    checked = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == listening and f"socket:[{fields[9]}]" in inodes:
                assert fields[1].startswith(loopback), f"listens on {fields[1]} of {table}"
                checked += 1
    # coordinator, ssh server, outlet, and ser2net for the console and for the meter
    assert checked >= 5
    assert running.environment["LG_COORDINATOR"].startswith("127.0.0.1:")


def test_up_again_returns_the_running_lab(running: lab.LabHandle) -> None:
    again = lab.up("virtual", owner_pid=os.getpid())
    assert again.environment == running.environment
    assert not again.started


def test_a_second_lab_runs_side_by_side(running: lab.LabHandle, module_state: Path) -> None:
    second = lab.up("second", owner_pid=os.getpid())
    devices = Path(_record("second").devices)
    assert second.environment["LG_COORDINATOR"] != running.environment["LG_COORDINATOR"]
    assert _client(second, "who").count("\n") == 1, "the place of the second lab is free"
    assert set(lab_names()) == {"virtual", "second"}
    assert lab.down("second")
    assert not devices.exists()
    assert lab.status("virtual").state == "up"
    assert not any("/second/" in line for line in processes(module_state))


# --------------------------------------------------------------------------------------- nothing of it outlives it


def _in_use(handle: lab.LabHandle) -> None:
    """Place acquired (ser2net runs), board on, card with the host."""
    _client(handle, "-p", "virtual", "acquire")
    _client(handle, "-p", "virtual", "power", "on")
    _client(handle, "-p", "virtual", "sd-mux", "host")


def _kill(*who: str) -> None:
    record = _record()
    heads = {"guardian": record.guardian, "supervisor": record.supervisor}
    services = {service.name: service.process for service in record.services}
    references = [heads.get(name) or services[name] for name in who]
    for reference in references:
        assert reference is not None
        os.kill(reference.pid, signal.SIGKILL)
    assert not wait_gone([reference for reference in references if reference is not None], _LIMIT_S)


@pytest.mark.parametrize(
    ("killed", "told"),
    [
        pytest.param(None, "it was taken down", id="down"),
        pytest.param("supervisor", "its supervisor was killed by SIGKILL", id="supervisor-killed"),
        pytest.param("guardian", "its guardian, process ", id="guardian-killed"),
    ],
)
def test_nothing_is_left_however_the_lab_ends_and_it_says_how(state: Path, killed: str | None, told: str) -> None:
    handle = lab.up("virtual", owner_pid=None)
    _in_use(handle)
    devices = Path(_record().devices)
    assert processes(state)
    assert (devices / "card").samefile(LabPaths.of("virtual").card)
    if killed is None:
        assert lab.down("virtual")
    else:
        _kill(killed)
    assert_nothing_left(state, devices)
    assert (
        PlaceFaults(handle.environment["LG_COORDINATOR"], "virtual")
        .faults()[0]
        .startswith(f"the lab 'virtual' has ended: {told}")
    )
    assert not LabPaths.of("virtual").record.exists()
    assert lab.status("virtual").state == "down"
    assert not lab.down("virtual")


def test_with_both_heads_killed_no_process_is_left_and_down_clears_up(state: Path) -> None:
    handle = lab.up("virtual", owner_pid=None)
    _in_use(handle)
    devices = Path(_record().devices)
    _kill("guardian", "supervisor")
    wait_for(lambda: not processes(state), f"left: {processes(state)}")
    assert lab.status("virtual").state == "down"
    assert not lab.down("virtual")
    assert_nothing_left(state, devices)


def test_up_clears_away_what_a_killed_lab_left(state: Path) -> None:
    lab.up("virtual", owner_pid=None)
    former = Path(_record().devices)
    _kill("guardian", "supervisor")
    handle = lab.up("virtual", owner_pid=None)
    assert handle.started
    assert not former.exists()
    assert _client(handle, "places").startswith("virtual ")
    devices = Path(_record().devices)
    lab.down("virtual")
    assert_nothing_left(state, devices)


_OWNER = """
import os, sys, time
from fsjoule.host.messages import lines_to
from fsjoule.virtual.lab import lab
with lines_to(lambda text: print(text, flush=True)):
    lab.up("virtual", owner_pid=os.getpid())
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "sig",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, id="ctrl-c"),
        # As each bench does.
        pytest.param(None, id="ended", marks=pytest.mark.slow),
    ],
)
def test_the_lab_ends_with_its_owner(state: Path, sig: signal.Signals | None) -> None:
    with subprocess.Popen(
        interruptible(sys.executable, "-c", _OWNER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.STDOUT,
    ) as owner:
        assert owner.stdout is not None
        said: list[str] = []
        while "up\n" not in said:
            said.append(owner.stdout.readline())
            assert said[-1], f"it ended before the lab was up: {said}"
        devices = Path(_record().devices)
        assert processes(state)
        if sig is None:
            owner.communicate("\n")
        else:
            owner.send_signal(sig)
    assert_nothing_left(state, devices)


def test_ctrl_c_while_the_lab_starts_leaves_nothing(state: Path) -> None:
    with subprocess.Popen(
        interruptible(sys.executable, "-c", _OWNER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
    ) as owner:
        assert owner.stdout is not None
        for line in owner.stdout:
            if line.startswith("starting exporter"):
                break
        devices = Path(_record().devices)
        owner.send_signal(signal.SIGINT)
        assert owner.wait(_LIMIT_S) != 0
    assert_nothing_left(state, devices)


def test_ser2net_ends_with_a_killed_exporter_and_up_starts_afresh(state: Path) -> None:
    handle = lab.up("virtual", owner_pid=None)
    _client(handle, "-p", "virtual", "acquire")
    ser2net = process.find_tool("ser2net")
    assert any(ser2net in line for line in processes(state))
    _kill("exporter")
    wait_for(lambda: not any(ser2net in line for line in processes(state)), "ser2net has outlived the exporter")
    wait_for(lambda: lab.status("virtual").state == "degraded", "the death of a service is not told")
    assert "exporter     DIED (was killed by SIGKILL at " in lab.status("virtual").text()
    fresh = lab.up("virtual", owner_pid=None)
    assert fresh.started
    assert lab.status("virtual").state == "up"
    devices = Path(_record().devices)
    lab.down("virtual")
    assert_nothing_left(state, devices)


# ------------------------------------------------------------------------------------------------------- bad input


def test_a_missing_tool_is_named_with_its_package_before_anything_starts(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("qemu-system-arm", "mcopy", "ser2net", "sshd", "ssh", "ssh-keygen"):
        (tmp_path / tool).symlink_to(process.find_tool(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="rsync") as caught:
        lab.up("virtual")
    assert caught.value.package == "rsync"
    assert "apt-get install rsync" in str(caught.value)
    assert not processes(state)


def test_a_service_that_does_not_start_is_named_with_its_last_words(state: Path) -> None:
    paths = LabPaths.of("virtual")
    paths.make()
    for name in ("host_key", "host_key.pub"):
        (paths.ssh / name).write_text("no key\n")
    with pytest.raises(
        LabError, match=r"the lab's sshd ended with exit code \d+: sshd: no hostkeys available"
    ) as caught:
        lab.up("virtual")
    assert str(paths.log("sshd")) in str(caught.value)
    assert not processes(state)
    assert not paths.record.exists()


def test_a_damaged_record_is_no_obstacle(state: Path) -> None:
    paths = LabPaths.of("virtual")
    paths.make()
    paths.record.write_text("{")
    assert lab.status("virtual").state == "down"
    assert not lab.down("virtual")
    assert not processes(state)


@pytest.mark.parametrize("name", ["", "../other", "Capital", "x" * 25, "with space"])
def test_a_name_must_be_a_plain_word(state: Path, name: str) -> None:
    assert state.is_dir()
    with pytest.raises(ConfigError, match="not a valid name of a lab"):
        lab.up(name)


def test_environment_of_a_lab_that_is_down_is_an_error(state: Path) -> None:
    assert state.is_dir()
    with pytest.raises(LabError, match="is down"):
        lab.environment("virtual")


def test_an_owner_that_does_not_run_is_refused(state: Path) -> None:
    with pytest.raises(LabError, match="does not run"):
        lab.up("virtual", owner_pid=2**22 + 1)
    assert not processes(state)
