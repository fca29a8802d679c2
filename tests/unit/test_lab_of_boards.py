"""A lab of several boards without its processes: what fits, which CPU, which place, which exporter."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from labgrid.remote.config import ResourceConfig

from fsjoule.errors import ConfigError, LabError, MissingToolError
from fsjoule.host.locks import try_lock
from fsjoule.host.messages import lines_to
from fsjoule.lab import read_environment
from fsjoule.model import MIB
from fsjoule.runs.held_lab import HeldLab
from fsjoule.runs.plan import plan_run
from fsjoule.virtual.board.config import BoardReady, NetworkConfig
from fsjoule.virtual.board.qemu import HostCpu
from fsjoule.virtual.lab.capacity import Room, check_fits, warn_of_shared_cpus
from fsjoule.virtual.lab.files import BoardRecord, LabPaths, LabRecord
from fsjoule.virtual.lab.services import Service, board_config, board_template, exporters, meter_serial, write_places

_PLENTY = Room(memory_bytes=1 << 40, disk_bytes=1 << 40, cpus=4)


def _fits(boards: int, room: Room, board: str = "board") -> list[str]:
    said: list[str] = []
    with lines_to(said.append):
        check_fits(boards, board_template(board), Path("/"), room=room)
        warn_of_shared_cpus(boards, board_template(board), room.cpus)
    return said


def test_boards_that_memory_or_disk_cannot_hold_are_refused_with_the_most_that_fit() -> None:
    small = Room(memory_bytes=2000 * MIB, disk_bytes=1 << 40, cpus=4)
    assert _fits(2, small) == []
    with pytest.raises(
        ConfigError, match=r"3 boards do not fit: each takes 0\.7 GiB of memory, and 2\.0 GiB are free"
    ) as no:
        _fits(3, small)
    assert "at most 2 boards" in str(no.value)
    # A card of 1 GiB, and a stick of half of one.
    with pytest.raises(ConfigError, match=r"each takes 1\.5 GiB of disk"):
        _fits(3, Room(memory_bytes=1 << 40, disk_bytes=4 << 30, cpus=4))
    assert _fits(1, Room(0, 0, 1)) == []
    with pytest.raises(
        ConfigError, match=r"1\.5 GiB of disk, and 0\.0 GiB are free in /\n  hint: make room, or take"
    ) as no:
        _fits(2, Room(1 << 40, 4096, 4))
    assert "FSJOULE_STATE_DIR=FOLDER" in str(no.value)


def test_boards_that_share_cpus_are_allowed_and_said() -> None:
    assert _fits(4, _PLENTY) == []
    [said] = _fits(5, _PLENTY)
    assert said == "warning: 5 boards share 4 CPUs: a board measures less MiB/s than one alone while others work"
    [said] = _fits(5, _PLENTY, "deterministic")
    assert said.endswith("a board takes longer while others work")


def test_this_computers_room_is_read() -> None:
    room = Room.here(Path("/nowhere/at/all"))
    assert room.memory_bytes > 0
    assert room.disk_bytes > 0
    assert room.cpus == len(os.sched_getaffinity(0))


def test_boards_take_the_cpu_with_the_fewest_boards(tmp_path: Path) -> None:
    first = [HostCpu({0, 1, 2}, tmp_path) for _ in range(3)]
    assert [each.number for each in first] == [2, 1, 0]
    second = HostCpu({0, 1, 2}, tmp_path)
    assert second.number == 2
    # A board ends while another one shares its CPU: two CPUs have one board each, the third has none.
    first[1].close()
    assert HostCpu({0, 1, 2}, tmp_path).number == 1


def test_a_lock_that_is_another_users_link_makes_no_file_of_ours(tmp_path: Path) -> None:
    (tmp_path / "fsjoule-cpu0-0").symlink_to(tmp_path / "cron-job")
    with pytest.raises(OSError, match="symbolic links"):
        try_lock("fsjoule-cpu0-0", tmp_path)
    assert not (tmp_path / "cron-job").exists()


def test_without_a_place_for_locks_a_board_still_gets_a_cpu(tmp_path: Path) -> None:
    assert HostCpu({0, 1}, tmp_path / "missing").number == 1


@pytest.fixture
def lab(tmp_path: Path) -> tuple[LabPaths, LabRecord]:
    """The files of a lab of three boards with two exporters, as they are once the boards have started."""
    paths = LabPaths(tmp_path / "labs" / "pool")
    paths.make(3)
    boards = tuple(BoardRecord(number) for number in (1, 2, 3))
    where = (str(tmp_path / "devices"), "127.0.0.1:20408", 22, "meter", "qemu")
    record = LabRecord("pool", "2026-01-01T00:00:00+00:00", *where, board="rpi3", boards=boards, exporters=2)
    for board in boards:
        files, devices = paths.of_board(board.number), record.devices_of(board.number)
        config = board_config(files, devices, "qemu", "rpi3", None, network=NetworkConfig(files.tftp))
        files.board_config.write_text(config.to_toml())
        card = f"{devices}/card"
        ready = BoardReady(1, "http://127.0.0.1:1/outlet/{index}", "", card, str(devices / "mux"), "")
        ready.write(files.board_ready)
    return paths, record


def _exported(service: Service) -> dict[str, Any]:
    read: Any = ResourceConfig  # labgrid ships no types
    return read(service.argv[-1], {"env": dict(service.env)}).data


def _consoles(services: Sequence[Service]) -> list[dict[str, str]]:
    return [{group: each["default"]["port"] for group, each in _exported(service).items()} for service in services]


def test_exporters_share_the_boards_and_each_board_has_its_own_devices(lab: tuple[LabPaths, LabRecord]) -> None:
    paths, record = lab
    services = exporters(paths, record)
    assert [(each.name, each.boards) for each in services] == [("exporter", (1, 2)), ("exporter-2", (3,))]
    devices = record.devices
    assert _consoles(services) == [
        {"virtual": f"{devices}/console", "virtual-2": f"{devices}/2/console"},
        {"virtual-3": f"{devices}/3/console"},
    ]
    cards = [each["NetworkUSBSDMuxDevice"]["path"] for service in services for each in _exported(service).values()]
    assert cards == [f"{devices}/card", f"{devices}/2/card", f"{devices}/3/card"]
    assert {paths.of_board(number).card for number in (1, 2, 3)} == {
        paths.root / "card.img",
        paths.root / "board-2" / "card.img",
        paths.root / "board-3" / "card.img",
    }
    assert len({meter_serial(paths.of_board(number)) for number in (1, 2, 3)}) == 3


def test_places_have_tags_by_which_a_run_chooses(lab: tuple[LabPaths, LabRecord]) -> None:
    paths, record = lab
    write_places(paths, record, board_template(record.board))
    places = yaml.safe_load((paths.coordinator / "places.yaml").read_text())
    assert {name: place["tags"] for name, place in places.items()} == {
        "virtual": {"board": "virtual", "kind": "rpi3", "soc": "bcm2837", "number": "1"},
        "virtual-2": {"board": "virtual", "kind": "rpi3", "soc": "bcm2837", "number": "2"},
        "virtual-3": {"board": "virtual", "kind": "rpi3", "soc": "bcm2837", "number": "3"},
    }
    names = [service.argv[service.argv.index("--name") + 1] for service in exporters(paths, record)]
    matches = [place["matches"] for place in places.values()]
    assert matches == [
        [{"exporter": exporter, "group": place, "cls": "*"}]
        for exporter, place in zip([names[0], names[0], names[1]], places, strict=True)
    ]


def test_who_changes_a_lab_is_named_at_once_and_awaited(tmp_path: Path, said: list[str]) -> None:
    first, second = (LabPaths(tmp_path / "labs" / "pool") for _ in range(2))
    assert second.being_changed == ""
    with first.lock():
        who = rf"the lab 'pool' is being brought up or down by process {os.getpid()} \(.*\) since 20\S+Z?"
        assert re.fullmatch(who, second.being_changed)
        with pytest.raises(LabError, match=who) as caught, second.lock(wait_s=0.1):
            pass
    assert caught.value.transient
    assert "end that process" in str(caught.value)
    assert [re.fullmatch(rf"{who}: waiting, for at most 0 s", line) is not None for line in said] == [True]
    with second.lock():
        assert len(said) == 1


def test_a_missing_program_is_found_before_a_board_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LG_COORDINATOR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    environment = read_environment(Path(__file__).parents[2] / "env" / "deterministic.yaml")
    choice = cast("Any", SimpleNamespace(profiled=False, resumed=None, results=tmp_path, boards=1))
    held = HeldLab(environment)
    with closing(held), pytest.raises(MissingToolError, match="'qemu-system-arm' was not found"):
        plan_run(choice, held, ("fsjoule", "bench"))
