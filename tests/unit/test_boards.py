"""The files of a real board: what `fsjoule board new` writes and `fsjoule board check` finds."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from command_line import CommandLine

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.kernels.recipe import load_recipe, recipe_files, recipes_folder
from fsjoule.lab import read_environment
from fsjoule.lab.boards.checking import check_board
from fsjoule.lab.boards.files import Wired, board_files, card_devices, console_of, paths_of, write_new
from fsjoule.model import MIB

PROJECT = project_dir()
CATALOGUE = sorted(name for name, file in recipe_files(recipes_folder()).items() if file.parent.name == "boards")
WIRED = Wired("netio", "http://outlet7.lab", 3, "A50285BI", "FSJ0001", "1234")
BONE = load_recipe(recipes_folder(), "beaglebone-black")
SSH = load_recipe(recipes_folder(), "orangepi-ssh")


def new(tmp_path: Path, name: str = "bone7", recipe: str = "beaglebone-black") -> Path:
    paths = paths_of(name, tmp_path)
    write_new(board_files(name, load_recipe(recipes_folder(), recipe), WIRED), paths)
    return paths["environment"]


def problems(file: Path) -> list[str]:
    return [str(problem) for problem in check_board(file).problems]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogues_files_are_those_that_board_new_writes(name: str, tmp_path: Path) -> None:
    texts = board_files(name, load_recipe(recipes_folder(), name), Wired())
    shipped = paths_of(name, PROJECT, part="boards")
    assert {kind: path.read_text() for kind, path in shipped.items()} == texts
    assert all(
        problem.endswith("the outlet's address") or "serial" in problem for problem in problems(shipped["environment"])
    )
    assert problems(new(tmp_path, "own", name)) == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_board_of_the_catalogue_has_a_page(name: str) -> None:
    index = (PROJECT / "docs" / "boards" / "index.md").read_text()
    [row] = [line for line in index.splitlines() if line.startswith("|") and f"`{name}`" in line]
    page = (PROJECT / "docs" / "boards" / row.partition("](")[2].partition(")")[0]).read_text()
    assert f"env/boards/{name}.yaml" in page
    assert f"labgrid/boards/{name}/exporter.yaml" in page
    assert "**What was tried" in page
    recipe = load_recipe(recipes_folder(), name)
    assert f"`{console_of(recipe).device}`" in page
    assert f"`{recipe.boot.mark_device.removeprefix('/dev/')}`" in page
    assert f"`{card_devices(recipe).card}`" in page


def test_the_environment_of_a_board_is_what_its_recipe_says(tmp_path: Path) -> None:
    environment = read_environment(new(tmp_path, "disco", "stm32mp157c-dk2"))
    profile, login = environment.profile, environment.login
    assert (profile.name, profile.recipe, profile.simulated) == ("disco", "stm32mp157c-dk2", False)
    assert (profile.card_device, profile.scratch_device) == ("mmcblk0", "/dev/mmcblk0p6")
    assert (profile.mark_device, profile.memory_bytes) == ("/dev/ttySTM1", 512 * MIB)
    assert login is not None
    assert login.login_prompt == "fsjoule login: "
    exporter = (tmp_path / "labgrid" / "disco" / "exporter.yaml").read_text()
    assert "model: netio" in exporter
    assert "speed: 115200" in exporter
    assert console_of(load_recipe(recipes_folder(), "rock-pi-4")).speed == 1500000


@pytest.mark.parametrize(
    ("flasher", "recipe", "drivers", "resource"),
    [
        ("sdwire", "orangepi", ("USBSDWireDriver: {}", "SdMuxFlasher:"), "USBSDWireDevice"),
        ("sdwire3", "orangepi", ("USBSDWire3Driver: {}", "SdMuxFlasher:"), "USBSDWire3Device"),
        ("ums", "rock-pi-4", ("command: ums 0 mmc 1", "prompt: '\\n=> '", "storage: usb", "by-path/1234"), "usb"),
        ("ums", "stm32mp157c-dk2", ("command: ums 0 mmc 0", "prompt: '\\nSTM32MP> '"), "usb"),
        ("tftp", "orangepi", ("prompt: '\\n=> '", "TFTPProviderDriver: {}", "device: mmc 0"), "TFTPProvider"),
        ("tftp", "imx6ul-evk", ("TftpFlasher:", "device: mmc 1"), "TFTPProvider"),
        ("fastboot", "rock-pi-4", ("command: fastboot usb 0", "AndroidFastbootDriver: {}"), "AndroidUSBFastboot"),
        ("fastboot-udp", "orangepi", ("command: fastboot udp", "prompt: '\\n=> '"), "AndroidNetFastboot"),
        ("in-place", "rpi4", ("InPlaceFlasher: {}",), None),
        ("kept", "rpi4", ("KeptCard: {}",), None),
    ],
)  # fmt: skip
def test_each_way_to_write_the_card_has_its_drivers_and_its_resource(
    flasher: str, recipe: str, drivers: tuple[str, ...], resource: str | None, tmp_path: Path
) -> None:
    paths = paths_of("bone7", tmp_path)
    write_new(board_files("bone7", load_recipe(recipes_folder(), recipe), WIRED, flasher), paths)
    assert problems(paths["environment"]) == []
    environment, exporter = paths["environment"].read_text(), paths["exporter"].read_text()
    assert all(driver in environment for driver in drivers)
    group = yaml.safe_load(exporter)["bone7"]
    own = [name for name in group if name not in ("NetworkPowerPort", "default", "meter")]
    assert own == ([] if resource is None else [resource])
    if resource == "TFTPProvider":
        assert group[resource] == {"internal": "/srv/tftp/bone7/", "external": "bone7/"}
    elif resource == "AndroidNetFastboot":
        assert group[resource] == {"address": "1234", "protocol": "udp"}
    elif resource is not None:
        assert "1234" in group[resource]["match"].values()


def test_a_card_over_usb_that_nothing_names_is_told(tmp_path: Path) -> None:
    paths = paths_of("bone7", tmp_path)
    write_new(board_files("bone7", load_recipe(recipes_folder(), "rock-pi-4"), WIRED, "ums"), paths)
    lines = paths["environment"].read_text().splitlines(keepends=True)
    paths["environment"].write_text("".join(line for line in lines if "disk_link" not in line))
    [problem] = problems(paths["environment"])
    assert problem.endswith("refuses to write\n  hint: add disk_link: /dev/disk/by-path/..., or disk_serial")


def test_a_board_is_reached_by_ssh_if_its_card_has_a_server(tmp_path: Path) -> None:
    paths = paths_of("pc7", tmp_path)
    write_new(board_files("pc7", SSH, WIRED, reached="ssh"), paths)
    assert problems(paths["environment"]) == []
    text = paths["environment"].read_text()
    assert "      NetworkService: {address: '', username: root}\n" in text
    assert "      SSHDriver: {}\n      SshServer: {driver: 'dwmac-sun8i'}\n" in text
    with pytest.raises(ConfigError, match=r"beaglebone-black.toml has no ssh server(.|\n)*base = \"beaglebone-black\""):
        board_files("bone7", BONE, WIRED, reached="ssh")
    with pytest.raises(ConfigError, match=r"unknown shell 'telnet'"):
        board_files("bone7", BONE, WIRED, reached="telnet")
    # Another recipe, whose card has none.
    paths["environment"].write_text(text.replace("recipe: orangepi-ssh", "recipe: orangepi"))
    [told] = problems(paths["environment"])
    assert "orangepi.toml has no ssh server, which SshServer would start" in told


def test_a_flag_may_be_written_in_each_way_that_yaml_has(tmp_path: Path) -> None:
    file = new(tmp_path)
    file.write_text(file.read_text().replace("boot_loader: true", "boot_loader: True"))
    assert problems(file) == []


@pytest.mark.parametrize(
    ("wired", "says"),
    [
        (Wired(outlet_model="a: b"), "'a: b' cannot be the name of an outlet's model"),
        (Wired(outlet_host="it's"), "is no address or serial number"),
        (Wired(console="{{ 1 }}"), "is no address or serial number"),
        (Wired(meter=""), "'' is no address or serial number"),
    ],
)
def test_what_would_break_the_exporters_file_is_refused(wired: Wired, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        board_files("bone7", BONE, wired)


def test_a_way_that_the_board_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="the boot loader of a BeagleBone Black has no command ums"):
        board_files("bone7", BONE, WIRED, "ums")
    with pytest.raises(
        ConfigError,
        match=r"unknown flasher 'glue'(.|\n)*fastboot, fastboot-udp, in-place, kept, sdmux, sdwire, sdwire3, tftp, ums",
    ):
        board_files("bone7", BONE, WIRED, "glue")


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    exporter = paths_of("bone7", tmp_path)["exporter"]
    exporter.parent.mkdir(parents=True)
    exporter.write_text("mine")
    with pytest.raises(ConfigError, match=r"already there: .*exporter.yaml"):
        new(tmp_path)
    assert exporter.read_text() == "mine"
    assert not (tmp_path / "env").exists()


@pytest.mark.parametrize(("name", "recipe"), [("a b", "beaglebone-black"), ("../x", "beaglebone-black"), ("x", "x86")])
def test_a_wrong_name_or_an_emulated_board_is_refused(name: str, recipe: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be the name|describes no real board"):
        board_files(name, load_recipe(recipes_folder(), recipe), WIRED)


# --------------------------------------------------------------------------------------------------------------- check


@pytest.mark.parametrize(
    ("found", "wrong", "says"),
    [
        ("      USBSDMuxDriver: {}\n", "", "SdMuxFlasher needs USBSDMuxDriver or USBSDWire"),
        ("      NetworkPowerDriver: {}\n", "", "BoardStrategy needs PowerProtocol (power), and no driver"),
        ("SerialDriver:\n        bindings:\n          port: default\n      ", "", "needs ConsoleProtocol (console)"),
        ("      MeterDriver:\n        bindings:\n          port: meter\n", "", "there is no meter"),
        ("card_device: mmcblk0", "card_device: mmcblk1", "card_device is mmcblk1, but the card of images/boards/"),
        ("mmcblk0p3", "mmcblk0p2", "scratch_device is /dev/mmcblk0p2, but the card of"),
        ("/dev/ttyO1", "/dev/ttyO0", "ttyO0 is the console and the mark line: marks would be taken for output"),
        (
            "mark_device: /dev/ttyO1\n",
            "mark_device: /dev/ttyO1\n        marks_on_console: true\n",
            "marks_on_console is true, but the console is ttyO0, and the mark line /dev/ttyO1",
        ),
        (
            "mark_device: /dev/ttyO1",
            "mark_device: /sys/class/powercap/intel-rapl:0/energy_uj",
            "a counter of the board's own, and no driver reads it",
        ),
        ("MeterDriver:\n        bindings:\n          port: meter\n", "BoardCounterDriver: {}\n", "/dev/ttyO1 is none"),
        (
            "MeterDriver:\n        bindings:\n          port: meter\n",
            "BoardCounterDriver:\n        simulated_watts: 5.0\n",
            "simulated_watts is for emulated boards only",
        ),
        ("'fsjoule login: '", "'bone login: '", "login_prompt 'bone login: ' does not match the"),
        ("'fsjoule login: '", "'('", "login_prompt '(' does not match the"),
        ("boot_loader: true", "boot_loader: false", "boot_loader is not set: a card without one would not be refused"),
        ("recipe: beaglebone-black", "recipe: colibri-imx6ull", "boot_loader is true, but the recipe images/b"),
        ("simulated: false", "simulated: true", "a real board's figures are not simulated"),
        ("memory_mib: 512", "memory_mib: 1024", "memory_mib is more than the 512 MiB that a BeagleBone Black has"),
    ],
)  # fmt: skip
def test_a_wrong_environment_file_is_explained(found: str, wrong: str, says: str, tmp_path: Path) -> None:
    file = new(tmp_path)
    text = file.read_text()
    assert found in text
    file.write_text(text.replace(found, wrong, 1))
    told = problems(file)
    assert any(says in line for line in told), told
    assert all("\n  hint: " in line for line in told)


def test_a_board_that_measures_itself_needs_no_meter(tmp_path: Path) -> None:
    file = new(tmp_path)
    text = file.read_text()
    for found, own in (
        ("MeterDriver:\n        bindings:\n          port: meter\n", "BoardCounterDriver: {}\n"),
        ("mark_device: /dev/ttyO1", "mark_device: /sys/class/powercap/intel-rapl:0/energy_uj"),
    ):
        assert found in text
        text = text.replace(found, own)
    file.write_text(text)
    assert problems(file) == []


@pytest.mark.parametrize(
    ("found", "wrong", "says"),
    [
        (
            "speed: 115200",
            "speed: 9600",
            ":13: the console has 9600 baud, but the kernel and boot loader of images/boards/b",
        ),
        ("'A50285BI'", "'CHANGE-ME'", ":12: ID_SERIAL_SHORT is not filled in"),
        ("  default:\n", "  console:\n", "bone7 has no console"),
    ],
)
def test_a_wrong_exporters_file_is_explained(found: str, wrong: str, says: str, tmp_path: Path) -> None:
    file = new(tmp_path)
    exporter = paths_of("bone7", tmp_path)["exporter"]
    text = exporter.read_text()
    assert found in text
    exporter.write_text(text.replace(found, wrong, 1))
    [told] = problems(file)
    assert says in told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"bone7: [", "not YAML"),
        (b"bone7: {{", "not a template"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "the file must be a mapping"),
        (b"bone7: [1, 2]", "bone7 must be a mapping"),
        (b"bone7: {default: 5}", "bone7: default must be a mapping"),
        (None, r"exporter.yaml: cannot be read: .*could not be found"),
    ],
)
def test_an_exporters_file_that_the_exporter_would_not_take_is_refused(
    content: bytes | None, says: str, tmp_path: Path
) -> None:
    file = new(tmp_path)
    exporter = paths_of("bone7", tmp_path)["exporter"]
    exporter.unlink() if content is None else exporter.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        check_board(file, exporter=exporter)


def test_a_virtual_boards_file_is_checked_as_well() -> None:
    assert problems(PROJECT / "env" / "virtual.yaml") == []
    assert problems(PROJECT / "env" / "virtual-orangepi.yaml") == []
    assert problems(PROJECT / "env" / "virtual-rpi3.yaml") == []
    assert problems(PROJECT / "env" / "virtual-orangepi-ssh.yaml") == []
    assert problems(PROJECT / "env" / "deterministic.yaml") == []
    assert problems(PROJECT / "env" / "deterministic-orangepi.yaml") == []


# ---------------------------------------------------------------------------------------------------------------- cli


def test_a_new_board_by_options_alone(fsjoule: CommandLine, tmp_path: Path) -> None:
    done = fsjoule("board", "new", "bone7", "--from", "beaglebone-black", "--into", tmp_path, "--console", "A50285BI")
    assert done.code == 0, done.err
    assert [Path(line).is_file() for line in done.out.splitlines()] == [True, True, True]
    assert "3 values are still CHANGE-ME" in done.err
    checked = fsjoule("board", "check", tmp_path / "env" / "bone7.yaml", "--no-loader")
    assert checked.code == 2
    assert checked.out.count("is not filled in") == 3
    assert "3 problems in the files of bone7" in checked.err
    again = fsjoule("board", "new", "bone7", "--from", "beaglebone-black", "--into", tmp_path)
    assert again.code == 2
    assert "already there" in again.err
    unsaid = fsjoule("board", "new", "bone8", "--into", tmp_path)
    assert unsaid.code == 2
    assert "rock-pi-4, rpi3, rpi4" in unsaid.err
    assert "beaglebone-black" in fsjoule("board", "list").out
    assert "Example: " in fsjoule("board", "new", "--help").out


def test_a_new_board_whose_meter_listens_to_the_console(fsjoule: CommandLine, tmp_path: Path) -> None:
    options = (
        "--marks-on-console",
        "--into",
        tmp_path,
        "--outlet-host",
        "http://o",
        "--console",
        "A5",
        "--meter",
        "F1",
    )
    done = fsjoule("board", "new", "pi7", "--from", "rpi4", *options, "--mux", "12")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == str(tmp_path / "images" / "pi7.toml")
    checked = fsjoule("board", "check", tmp_path / "env" / "pi7.yaml", "--no-loader")
    assert checked.code == 0, checked.out
    profile = read_environment(tmp_path / "env" / "pi7.yaml").profile
    assert (profile.mark_device, profile.marks_on_console) == ("/dev/ttyS1", True)
    own, other = (load_recipe(recipes_folder(), name) for name in (profile.recipe, "rpi4"))
    assert own.boot.mark_device == "/dev/ttyS1"
    assert own.model_copy(update={"boot": other.boot, "name": "", "file": ""}) == other.model_copy(
        update={"name": "", "file": ""}
    )
    # The Raspberry Pi 3 has no other line: its own recipe says so.
    done = fsjoule("board", "new", "pi8", "--from", "rpi3", *options)
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert read_environment(tmp_path / "env" / "pi8.yaml").profile.recipe == "rpi3"


def test_a_console_that_is_too_fast_for_the_meter_is_told(fsjoule: CommandLine, tmp_path: Path) -> None:
    assert fsjoule("board", "new", "rock7", "--from", "rock-pi-4", "--marks-on-console", "--into", tmp_path).code == 0
    [speed] = [line for line in problems(tmp_path / "env" / "rock7.yaml") if "baud" in line]
    assert "the meter's mark input has 115200 baud, but the console 1500000" in speed
