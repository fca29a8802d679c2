"""A GPIO as the mark line: its pin in the device tree, the recipe and files of a new board, and the emulated wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from virtual_board import MeterTty, board_config
from waiting import wait_for

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.kernels.kernel import change_device_tree
from fsjoule.kernels.recipe import MARK_LED, load_recipe, parse_recipe, recipes_folder
from fsjoule.lab.environment import read_environment
from fsjoule.virtual.board.config import BoardConfig, MarkGpioConfig
from fsjoule.virtual.board.program import MarkPin
from fsjoule.virtual.board.qemu import arguments

TREE = "/dts-v1/; / { aliases { }; soc { gpio@7e200000 { gpio-controller; phandle = <15>; }; quiet { }; }; };"
RECIPE = f"""
base = "rpi3"
[boot]
mark_device = "{MARK_LED}"
[boot.mark_gpio]
controller = "/soc/gpio@7e200000"
cells = [17, 1]
[modules]
card = ["bcm2835", "leds-gpio"]
"""


def tree(folder: Path) -> Path:
    file = folder / "board.dtb"
    file.write_bytes(process.run(["dtc", "-q"], input_bytes=TREE.encode(), timeout_s=10).stdout)
    return file


# ---------------------------------------------------------------------------------------------------------- the recipe


def test_the_pin_becomes_an_led_that_is_off_at_first(tmp_path: Path) -> None:
    file, recipe = tree(tmp_path), parse_recipe(RECIPE, name="own", file=recipes_folder() / "own.toml")
    change_device_tree(file, recipe)
    led = "/fsjoule-leds/fsjoule-mark"
    asked = ["/fsjoule-leds", "compatible", led, "default-state"]
    assert process.run(["fdtget", file, *asked], timeout_s=10).stdout.decode().split() == ["gpio-leds", "off"]
    assert process.run(["fdtget", "-t", "u", file, led, "gpios"], timeout_s=10).stdout.decode().split() == [
        "15", "17", "1",
    ]  # fmt: skip


@pytest.mark.parametrize("controller", ["/soc/gpio@0", "/soc/quiet"])
def test_a_controller_that_the_device_tree_does_not_have_is_named(controller: str, tmp_path: Path) -> None:
    text = RECIPE.replace("/soc/gpio@7e200000", controller)
    recipe = parse_recipe(text, name="own", file=recipes_folder() / "own.toml")
    with pytest.raises(ConfigError, match=f"bcm2837-rpi-3-b.dtb has no GPIO controller '{controller}'"):
        change_device_tree(tree(tmp_path), recipe)


@pytest.mark.parametrize(
    ("found", "wrong", "says"),
    [
        (MARK_LED, "/dev/ttyS1", "mark_gpio is a pin, but mark_device is /dev/ttyS1, not /sys/class/leds"),
        (', "leds-gpio"', "", "boot.mark_gpio needs the module leds-gpio in modules.card"),
        ("[17, 1]", "[]", "boot.mark_gpio.cells"),
        ("[17, 1]", '["17"]', "boot.mark_gpio.cells"),
        ("/soc/gpio@7e200000", "gpio0", "boot.mark_gpio.controller"),
        (MARK_LED, "/sys/class/leds/mark", "boot.mark_device"),
    ],
)
def test_a_wrong_pin_is_named(found: str, wrong: str, says: str) -> None:
    assert found in RECIPE
    with pytest.raises(ConfigError, match=says):
        parse_recipe(RECIPE.replace(found, wrong), name="own", file=recipes_folder() / "own.toml")


def test_a_pin_needs_a_device_tree() -> None:
    text = RECIPE.replace('"rpi3"', '"x86"')
    with pytest.raises(ConfigError, match="mark_gpio is a pin of the device tree, but dtb names none"):
        parse_recipe(text, name="own", file=recipes_folder() / "own.toml")


# ----------------------------------------------------------------------------------------------------------- the files


def test_a_new_board_with_its_marks_on_a_gpio(fsjoule: CommandLine, tmp_path: Path) -> None:
    wired = ("--outlet-host", "http://o", "--console", "A5", "--meter", "F1", "--mux", "12", "--into", tmp_path)
    done = fsjoule("board", "new", "pi7", "--from", "rpi3", "--mark-gpio", "/soc/gpio@7e200000 17 0", *wired)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == str(tmp_path / "images" / "pi7.toml")
    checked = fsjoule("board", "check", tmp_path / "env" / "pi7.yaml", "--no-loader")
    assert checked.code == 0, checked.out
    profile = read_environment(tmp_path / "env" / "pi7.yaml").profile
    assert (profile.mark_device, profile.marks_on_console) == (MARK_LED, False)
    recipe = load_recipe(recipes_folder(), profile.recipe)
    assert recipe.boot.mark_gpio is not None
    assert (recipe.boot.mark_gpio.controller, recipe.boot.mark_gpio.cells) == ("/soc/gpio@7e200000", (17, 0))
    assert recipe.modules.card == (*load_recipe(recipes_folder(), "rpi3").modules.card, "leds-gpio")


@pytest.mark.parametrize("pin", ["17", "/soc/gpio@7e200000", "/soc/gpio@7e200000 seventeen", "gpio 17 0", " "])
def test_what_names_no_pin_is_refused(pin: str, fsjoule: CommandLine, tmp_path: Path) -> None:
    done = fsjoule("board", "new", "pi7", "--from", "rpi3", "--mark-gpio", pin, "--into", tmp_path)
    assert done.code == 2
    assert "names no pin" in done.err
    assert list(tmp_path.iterdir()) == []


def test_marks_go_one_way(fsjoule: CommandLine, tmp_path: Path) -> None:
    options = ("--mark-gpio", "/soc/gpio@7e200000 17 0", "--marks-on-console", "--into", tmp_path)
    done = fsjoule("board", "new", "pi7", "--from", "rpi3", *options)
    assert (done.code, "marks go one way only" in done.err) == (2, True)


# ------------------------------------------------------------------------------------------------------------ the wire


def test_a_pin_of_the_virtual_board_is_written_and_read(tmp_path: Path) -> None:
    config = replace(board_config(tmp_path), mark_gpio=MarkGpioConfig("/machine/soc/gpio0", 3))
    file = tmp_path / "board.toml"
    file.write_text(config.to_toml())
    assert BoardConfig.from_toml(file) == config
    words = arguments(config, None, tmp_path / "card.img", console=3, mark=4, control=5, pin=6)
    assert words[words.index("socket,id=pin,fd=6") - 1] == "-chardev"
    assert words[words.index("qtest,id=levels,chardev=pin,log=none") - 1] == "-object"
    file.write_text(f"{config.to_toml()}\n[guest_time]\n")
    with pytest.raises(ConfigError, match="a board in guest time sends its marks over a UART") as caught:
        BoardConfig.from_toml(file)
    assert caught.value.line is not None


@contextmanager
def wired(folder: Path) -> Generator[tuple[socket.socket, MeterTty]]:
    """QEMU's end of the test protocol of a board whose pin is 17, and the meter's mark pin."""
    pin = MarkPin(MarkGpioConfig("/machine/soc/gpio0", 17), folder / "pin")
    ours, theirs = socket.socketpair()
    with MeterTty(folder / "pin") as meter:
        pin.connect(theirs)
        with ours, ours.makefile() as lines:
            assert lines.readline() == "irq_intercept_out /machine/soc/gpio0\n"
            yield ours, meter
        wait_for(lambda: all(each.name != "mark pin" for each in threading.enumerate()))
    pin.close()


def test_levels_of_the_pin_reach_the_meter_and_others_do_not(tmp_path: Path) -> None:
    with wired(tmp_path) as (qemu, meter):
        qemu.sendall(b"OK\nIRQ raise 16\nIRQ raise 17\nIRQ lower 16\nIRQ low")
        meter.expect(b"1")
        qemu.sendall(b"er 17\nIRQ raise 17\n")
        meter.expect(b"01")
        qemu.shutdown(socket.SHUT_RDWR)  # the board has no power any more
        meter.expect(b"0")
        assert meter.seen == b""


def test_a_controller_that_qemu_does_not_have_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with wired(tmp_path) as (qemu, _):
        qemu.sendall(b"FAIL Unknown device\n")
        wait_for(lambda: bool(caplog.messages))
    assert caplog.messages == ["QEMU has no outputs at /machine/soc/gpio0, which mark_gpio names"]
