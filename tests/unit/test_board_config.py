from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_board import board_config

from fsjoule.errors import ConfigError, LabError
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import MIB
from fsjoule.virtual.board.boot_partition import BootFiles
from fsjoule.virtual.board.config import (
    BoardConfig,
    BoardReady,
    Boot,
    DiskConfig,
    FlashMemoryConfig,
    GuestTimeConfig,
    NetworkConfig,
    Serial,
)
from fsjoule.virtual.board.power import PowerCoefficients
from fsjoule.virtual.board.qemu import arguments
from fsjoule.virtual.disks.card import prepare_disk
from fsjoule.virtual.disks.lossy_disk import Cache
from fsjoule.virtual.lab import services

EXAMPLE = Path(__file__).parents[2] / "labgrid" / "virtual" / "board.toml"


def read(folder: Path, text: str) -> BoardConfig:
    file = folder / "board.toml"
    file.write_text(text)
    return BoardConfig.from_toml(file)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    config = board_config(tmp_path, 'a "name" with \\ and ü')
    config = replace(
        config, power=PowerCoefficients(idle_w=0.9), qemu=replace(config.qemu, extra_args=("-accel", "tcg"))
    )
    assert read(tmp_path, config.to_toml()) == config


def test_guest_time_is_written_and_read(tmp_path: Path) -> None:
    guest = GuestTimeConfig(mailbox=tmp_path / "box", probe=tmp_path / "probe.so", shift=4, card_peak_w=0.5)
    config = replace(board_config(tmp_path), guest_time=guest)
    assert read(tmp_path, config.to_toml()) == config


def test_a_boot_loader_in_flash_memory_is_written_and_read_and_starts_with_the_board(tmp_path: Path) -> None:
    flash = FlashMemoryConfig("trixie", "u-boot-imx", "a/u-boot.imx", 0x17800000, 3072, tmp_path / "a,b.bin")
    config = replace(board_config(tmp_path), flash_memory=flash)
    assert read(tmp_path, config.to_toml()) == config
    words = arguments(config, None, tmp_path / "card.img", console=3, mark=4, control=5)
    loader = f"loader,file={tmp_path}/a,,b.bin,addr=0x17800000,cpu-num=0,force-raw=on"
    assert words[words.index(loader) - 1] == "-device"


def test_a_network_is_written_and_read_and_reaches_nothing_but_its_folder(tmp_path: Path) -> None:
    config = replace(board_config(tmp_path), network=NetworkConfig(tmp_path / "tftp"))
    assert read(tmp_path, config.to_toml()) == config
    words = arguments(config, None, tmp_path / "card.img", console=3, mark=4, control=5)
    assert words[words.index("-nic") + 1] == f"user,restrict=on,tftp={tmp_path}/tftp"
    config = replace(config, network=NetworkConfig(tmp_path / "tftp", ssh_port=2222))
    assert read(tmp_path, config.to_toml()) == config
    words = arguments(config, None, tmp_path / "card.img", console=3, mark=4, control=5)
    assert words[words.index("-nic") + 1].endswith(",hostfwd=tcp:127.0.0.1:2222-:22"), "loopback only"
    config = replace(config, network=NetworkConfig(tmp_path / "tftp", 2222, 5555, fastboot=True))
    assert read(tmp_path, config.to_toml()) == config
    words = arguments(config, None, tmp_path / "card.img", console=3, mark=4, control=5)
    assert words[words.index("-nic") + 1].startswith("user,restrict=off,"), "QEMU's filter drops a board's UDP"
    assert words[words.index("-nic") + 1].endswith(",hostfwd=udp:127.0.0.1:5555-:5554")


def test_disks_are_written_and_read(tmp_path: Path) -> None:
    disks = {"nvme": DiskConfig("nvme,serial=nvme0", 1024), "stick": DiskConfig("usb-storage", 512, Cache.TORN)}
    config = replace(board_config(tmp_path), disks=disks)
    assert read(tmp_path, config.to_toml()) == config
    assert config.disk_image("stick") == tmp_path / "card-stick.img"


@pytest.mark.parametrize(
    ("disk", "says", "line"),
    [
        ('[disks.d]\ndevice = "nvme"', "the key 'disks.d.size_mib' is missing", "[disks.d]"),
        ('[disks.d]\ndevice = "nvme"\nsize_mib = 0', "disks.d.size_mib = 0 is wrong", "size_mib = 0"),
        ('[disks.d]\ndevice = "nvme"\nsize_mib = 1\nsize = 1', "choose from: device, size_mib, cache", "size = 1"),
        ('[disks.d]\ndevice = "nvme"\nsize_mib = 1\ncache = "big"', "disks.d.cache = 'big' is wrong", "cache"),
        (
            '[disks.d]\ndevice = "nvme"\nsize_mib = 1\nflash_spare = 2',
            "disks.d.flash_spare = 2 is wrong",
            "flash_spare",
        ),
        ('[disks.d]\ndevice = "nvme"\nsize_mib = 1\nflash_cache_mib = 1', "flash_cache_mib alone", "flash_cache_mib"),
        ('[disks.".."]\ndevice = "nvme"\nsize_mib = 1', "should match pattern", '[disks.".."]'),
    ],
)
def test_mistakes_about_disks_are_named(tmp_path: Path, disk: str, says: str, line: str) -> None:
    text = f"{board_config(tmp_path).to_toml()}\n{disk}\n"
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, text)
    assert caught.value.line is not None
    assert text.splitlines()[caught.value.line - 1].startswith(line)


def test_a_board_in_guest_time_has_no_disks(tmp_path: Path) -> None:
    guest = GuestTimeConfig(mailbox=tmp_path / "box", probe=tmp_path / "probe.so")
    config = replace(board_config(tmp_path), guest_time=guest, disks={"d": DiskConfig("nvme", 1)})
    with pytest.raises(ConfigError, match="no disks besides its card"):
        read(tmp_path, config.to_toml())


def test_a_disk_image_is_sparse_and_gets_the_size_of_its_config(tmp_path: Path) -> None:
    image = tmp_path / "card-d.img"
    prepare_disk(image, 8 * MIB)
    assert (image.stat().st_size, image.stat().st_blocks) == (8 * MIB, 0)
    with image.open("rb+") as file:
        file.write(b"kept")
    prepare_disk(image, 16 * MIB)
    assert image.stat().st_size == 16 * MIB
    assert image.read_bytes()[:4] == b"kept"
    with pytest.raises(LabError, match="cannot be made"):
        prepare_disk(tmp_path / "none" / "card-d.img", MIB)


def test_the_lossy_example_loses_the_cache_of_its_stick() -> None:
    config = BoardConfig.from_toml(EXAMPLE.with_name("lossy.toml"))
    assert config.disks["stick"].cache is Cache.TORN
    assert config.disks["stick"].device == BoardConfig.from_toml(EXAMPLE).disks["stick"].device


def test_the_deterministic_example_is_right() -> None:
    config = BoardConfig.from_toml(EXAMPLE.with_name("deterministic.toml"))
    assert config.guest_time is not None
    assert config.guest_time.mailbox == EXAMPLE.parent / "mailbox.sock"
    for machine in ("orangepi", "rpi3"):
        guest = BoardConfig.from_toml(EXAMPLE.with_name(f"deterministic-{machine}.toml"))
        assert guest.guest_time is not None
        assert guest.power == config.power
        feed = config.feed.with_name("power.feed")
        plain = replace(guest, name=machine, feed=feed, power=PowerCoefficients(), guest_time=None)
        real = BoardConfig.from_toml(EXAMPLE.with_name(f"{machine}.toml"))
        # Marks have a line of their own.
        assert plain == replace(real, recipe=guest.recipe, qemu=replace(real.qemu, serials=guest.qemu.serials))


@pytest.mark.parametrize(
    ("guest_time", "says"),
    [
        ('mailbox = "m"\nprobe = "p"\nshift = 11', "guest_time.shift = 11 is wrong"),
        ('mailbox = "m"\nprobe = "p"\nspeed = 1', "unknown key 'guest_time.speed'"),
        (f'mailbox = "{"m" * 120}"\nprobe = "p"', "too long"),
    ],
)
def test_mistakes_about_guest_time_are_named(tmp_path: Path, guest_time: str, says: str) -> None:
    text = board_config(tmp_path).to_toml()
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, f"{text}\n[guest_time]\n{guest_time}\n")
    assert caught.value.line is not None


def test_a_board_without_a_second_uart_has_its_meter_on_the_console(tmp_path: Path) -> None:
    text = board_config(tmp_path).to_toml().replace('["console", "mark"]', '["none", "console"]')
    assert read(tmp_path, text).qemu.serials == (Serial.NONE, Serial.CONSOLE)
    with pytest.raises(ConfigError, match="mark may be missing, but not in guest time"):
        read(tmp_path, f"{text}\n[guest_time]\n")


def test_the_example_is_right_and_relative_to_itself() -> None:
    config = BoardConfig.from_toml(EXAMPLE)
    assert config.card.image == EXAMPLE.parent / "card.img"
    assert config.power == PowerCoefficients()


@pytest.mark.parametrize(
    ("found", "wrong", "says", "line"),
    [
        ("volts = 5.0", "volts = 0", "power.volts = 0 is wrong", "volts"),
        ("volts = 5.0", "wolts = 5.0", "unknown key 'power.wolts'", "wolts"),
        ("port = 0", "port = 70000", "outlet.port = 70000 is wrong", "port"),
        ("size_mib = 1024", "size_mib = 1000", "card.size_mib = 1000 is wrong", "size_mib"),
        ('name = "test"', 'nam = "test"', "the key 'name' is missing", None),
        ("[card]", "[carb]", "unknown key 'carb'", "[carb]"),
        ('boot = "kernel"', 'boot = "grub"', "qemu.boot = 'grub' is wrong", "boot"),
        ('["console", "mark"]', '["mark"]', "qemu.serials has 0 times 'console'", "serials"),
        ('["console", "mark"]', '["mark", "console", "mark"]', "qemu.serials has 2 times 'mark'", "serials"),
        ('name = "test"', "name = test", "not valid TOML", "name"),
        ("idle_w = 1.1", 'idle_w = "much"', "power.idle_w = 'much' is wrong", "idle_w"),
    ],
)
def test_mistakes_are_named_with_their_place(
    tmp_path: Path, found: str, wrong: str, says: str, line: str | None
) -> None:
    text = board_config(tmp_path).to_toml()
    assert found in text
    text = text.replace(found, wrong)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert says in str(caught.value)
    assert str(tmp_path / "board.toml") in str(caught.value)
    if line is not None:
        assert caught.value.line is not None
        assert text.splitlines()[caught.value.line - 1].startswith(line)


def test_unknown_keys_come_with_the_known_ones(tmp_path: Path) -> None:
    text = board_config(tmp_path).to_toml().replace("idle_w", "idle")
    with pytest.raises(ConfigError, match="volts, idle_w, cpu_w") as caught:
        read(tmp_path, text)
    assert caught.value.exit_code == 2


def test_a_long_socket_path_is_refused(tmp_path: Path) -> None:
    config = board_config(tmp_path)
    config = replace(config, card=replace(config.card, control_socket=tmp_path / ("x" * 120)))
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        read(tmp_path, config.to_toml())


def test_a_labs_board_is_read_however_deep_its_config_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that uvx unpacks lies 60 characters deep."""
    deep = tmp_path / ("x" * 100)
    shutil.copytree(EXAMPLE.parent, deep / "labgrid" / "virtual")
    monkeypatch.setattr(services, "project_dir", lambda: deep)
    assert services.board_template("deterministic").guest_time is not None


def test_a_missing_file_names_the_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"labgrid/virtual/board\.toml"):
        BoardConfig.from_toml(tmp_path / "none.toml")


def test_ready_file(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    assert BoardReady.read(file) is None
    ready = BoardReady(1, "http://x/outlet/{index}", "http://x/status", "card", "mux.sock", "console")
    ready.write(file)
    assert BoardReady.read(file) == ready


BOOT = BootFiles(Path("k"), Path("i"), Path("d"), "console=ttymxc0")


@pytest.mark.parametrize("file", sorted(EXAMPLE.parent.glob("*.toml")), ids=lambda file: file.stem)
def test_every_board_is_described_by_what_is_its_own(file: Path) -> None:
    if file.stem in ("emmc", "slc-nand"):
        return  # a storage device
    config = BoardConfig.from_toml(file)
    assert config.card.control_socket == file.with_name("mux.sock")
    assert (
        load_recipe(recipes_folder(), config.recipe).boot_loader.pieces.keys()
        == (
            {
                Boot.KERNEL: set(),
                Boot.LOADER: {"spl"} if config.flash_memory is None else set(),
                Boot.FIRMWARE: {"bootcode", "start", "fixup", "config", "u-boot"},
            }[config.qemu.boot]
        )
    )


def test_a_board_with_its_own_boot_loader_gets_no_kernel_and_serial_lines_in_its_own_order() -> None:
    config = board_config(Path("/lab"))
    lines = (Serial.NONE, Serial.MARK, Serial.CONSOLE)
    config = replace(config, qemu=replace(config.qemu, boot=Boot.LOADER, serials=lines))
    found = arguments(config, None, config.card.image, console=3, mark=4, control=5)
    assert not {"-kernel", "-initrd", "-dtb", "-append"} & set(found)
    assert "spawn=deny" in found[found.index("-sandbox") + 1]
    serials = [value for option, value in itertools.pairwise(found) if option == "-serial"]
    assert serials == ["null", "chardev:mark", "chardev:console"]


def test_an_orange_pis_usb_controllers_reach_no_memory_after_its_boot_loader() -> None:
    config = board_config(Path("/lab"))
    quirk = "sysbus-ohci.dma-offset=0x100000000"
    assert quirk not in arguments(config, None, config.card.image, console=3, mark=4, control=5)
    for machine in ("orangepi-pc", "orangepi-pc,usb=off"):
        config = replace(config, qemu=replace(config.qemu, machine=machine))
        words = arguments(config, None, config.card.image, console=3, mark=4, control=5)
        assert words[words.index(quirk) - 1] == "-global"


def test_a_card_whose_writes_are_recorded_is_served() -> None:
    config = board_config(Path("/lab"))
    words = arguments(config, BOOT, config.card.image, console=3, mark=4, control=5, card_server=Path("/lab/socket"))
    [drive] = [value for option, value in itertools.pairwise(words) if option == "-drive"]
    assert drive.startswith("if=sd,index=")
    assert drive.endswith("file.server.path=/lab/socket")


def test_a_boot_loader_in_the_kernels_place_gets_its_device_tree_and_no_initrd() -> None:
    config = board_config(Path("/lab"))
    boot = BootFiles(Path("u-boot.bin"), None, Path("board.dtb"), "")
    found = arguments(config, boot, config.card.image, console=3, mark=4, control=5)
    options = dict(itertools.pairwise(found))
    assert (options["-kernel"], options["-dtb"]) == ("u-boot.bin", "board.dtb")
    assert "-initrd" not in found


def drives_and_devices(config: BoardConfig) -> list[str]:
    found = arguments(config, BOOT, config.card.image, console=3, mark=4, control=5)
    options = itertools.pairwise(found)
    return [value for option, value in options if option in ("-drive", "-device")]


def test_commas_in_the_cards_path_are_qemus_to_unquote() -> None:
    found = drives_and_devices(board_config(Path("/a,b")))
    assert [each.rpartition("file=")[2] for each in found] == ["/a,,b/card.img"]


def test_card_and_disks_come_with_the_devices_of_the_config() -> None:
    config = board_config(Path("/lab"))
    config = replace(
        config,
        card=replace(config.card, device="sd-card"),
        disks={"nvme": DiskConfig("nvme,serial=n", 1)},
        qemu=replace(config.qemu, extra_args=("-device", "sdhci-pci")),
    )
    controller, card, card_device, disk, disk_device = drives_and_devices(config)
    assert controller == "sdhci-pci", "before what sits in it"
    assert card.startswith("if=none,id=card,")
    assert card_device == "sd-card,drive=card"
    assert disk.startswith("if=none,id=disk-nvme,")
    assert disk.endswith("file=/lab/card-nvme.img")
    assert disk_device == "nvme,serial=n,drive=disk-nvme,id=nvme"


def test_the_imx_has_a_slot_of_its_own_for_the_card() -> None:
    config = board_config(Path("/lab"))
    (card,) = drives_and_devices(config)
    assert card.startswith("if=sd,index=1,id=card,")
    (card,) = drives_and_devices(replace(config, card=replace(config.card, slot=0)))
    assert card.startswith("if=sd,index=0,id=card,")


def test_a_disk_of_flash_memory_is_served() -> None:
    plain, flash = DiskConfig("nvme", 64), DiskConfig("nvme", 64, flash_spare=0.1, flash_cache_mib=4)
    assert (plain.served, plain.flash, flash.served) == (False, None, True)
    assert flash.flash is not None
    assert (flash.flash.size_bytes, flash.flash.geometry.cache_bytes) == (64 * MIB, 4 * MIB)
    _, disk, _ = drives_and_devices(replace(board_config(Path("/lab")), disks={"d": flash}))
    assert "file.driver=nbd" in disk
