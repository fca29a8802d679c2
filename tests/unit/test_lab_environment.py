"""Environment files: what is taken from a good one, and what is said of a broken one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.lab.environment import missing_resources
from fsjoule.model import Reach

_VIRTUAL = project_dir() / "env" / "virtual.yaml"


def _changed(folder: Path, old: str, new: str) -> Path:
    """The virtual board's file with one place changed."""
    text = _VIRTUAL.read_text()
    assert old in text
    file = folder / "env.yaml"
    file.write_text(text.replace(old, new))
    return file


def _line(file: Path, part: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), start=1) if part in line)


def test_the_virtual_board() -> None:
    environment = read_environment(_VIRTUAL)
    assert environment.virtual_lab == "virtual"
    assert environment.profile.simulated
    assert environment.profile.recipe == "imx6ul"
    assert environment.profile.mark_device == "/dev/ttymxc1"


def test_the_lossy_board_is_the_usual_one_with_another_name_and_config() -> None:
    usual, lossy = (read_environment(path) for path in (_VIRTUAL, _VIRTUAL.with_name("virtual-lossy.yaml")))
    assert (lossy.virtual_lab, lossy.virtual_board) == ("virtual-lossy", "lossy")
    assert replace(lossy.profile, name=usual.profile.name) == replace(usual.profile, storages=lossy.profile.storages)
    assert lossy.profile.storages.items() <= usual.profile.storages.items()


def test_what_the_flasher_can_change_is_known_before_the_board_is_touched(tmp_path: Path) -> None:
    assert read_environment(_VIRTUAL).profile.reach is Reach.CARD
    kept = _changed(tmp_path, "      SdMuxFlasher:\n        write_timeout: 300\n", "      KeptCard: {}\n")
    assert read_environment(kept).profile.reach is Reach.SCRATCH


_METER = "      MeterDriver:\n        bindings:\n          port: meter\n"
_MUX = "      SdMuxFlasher:\n        write_timeout: 300\n"


def test_what_a_board_does_without_is_known_before_it_is_touched(tmp_path: Path) -> None:
    full = read_environment(_VIRTUAL)
    assert (full.has_meter, full.does_without) == (True, ())
    unmetered = read_environment(_changed(tmp_path, _METER, ""))
    assert (unmetered.has_meter, unmetered.does_without) == (False, ("without a meter: throughput only, no energy",))
    for flasher, told in (
        ("KeptCard: {}", "the card stays in the board as it is"),
        ("InPlaceFlasher: {}", "the card stays in the board, which writes the kernel itself"),
        ("TftpFlasher: {device: mmc 0}", "U-Boot writes the card, from a TFTP server"),
        ("UmsFlasher: {command: ums 0 mmc 0}", "the card is written over USB while U-Boot offers it"),
    ):
        muxless = read_environment(_changed(tmp_path, _MUX, f"      {flasher}\n"))
        assert muxless.does_without == (f"without an SD mux: {told}",)


_PLACE = {
    ("NetworkPowerPort", "power"),
    ("NetworkSerialPort", "default"),
    ("NetworkSerialPort", "meter"),
    ("NetworkUSBSDMuxDevice", "mux"),
    ("NetworkUSBMassStorage", "card"),
}


def test_a_place_has_what_the_drivers_need_or_it_is_named(tmp_path: Path) -> None:
    environment = read_environment(_VIRTUAL)
    assert missing_resources(environment, _PLACE) == ()
    for part, told in (
        ("meter", "MeterDriver needs NetworkSerialPort or SerialPort named 'meter'"),
        ("mux", "USBSDMuxDriver needs NetworkUSBSDMuxDevice or USBSDMuxDevice"),
        ("power", "NetworkPowerDriver needs NetworkPowerPort"),
    ):
        [lacking] = missing_resources(environment, {each for each in _PLACE if each[1] != part})
        assert lacking == told
    unmetered = read_environment(_changed(tmp_path, _METER, ""))
    assert missing_resources(unmetered, {each for each in _PLACE if each[1] != "meter"}) == ()


def test_a_driver_that_would_not_be_used_where_it_stands_is_named(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(_VIRTUAL.read_text().rstrip() + "\n      SSHDriver: {}\n")
    with pytest.raises(ConfigError, match="SSHDriver comes after BoardStrategy, which would not use it") as caught:
        read_environment(file)
    assert caught.value.line == _line(file, "SSHDriver")
    assert read_environment(_VIRTUAL.with_name("virtual-orangepi-ssh.yaml")).profile.recipe == "orangepi-ssh"


def test_the_deterministic_board() -> None:
    environment = read_environment(_VIRTUAL.with_name("deterministic.yaml"))
    assert (environment.virtual_lab, environment.virtual_board) == ("deterministic", "deterministic")
    assert environment.profile.guest_time
    assert environment.profile.card_model is not None
    assert environment.profile.card_model.name == "emmc"


def test_one_file_takes_the_instrument_that_a_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    file = _VIRTUAL.with_name("virtual-instrument.yaml")
    for name in ("iio", "scpi"):
        monkeypatch.setenv("LG_INSTRUMENT", name)
        environment = read_environment(file)
        assert environment.profile.name == f"virtual-{name}"
        assert [each.bindings for each in environment.drivers if each.cls == "InstrumentDriver"] == [
            {"instrument": name}
        ]
    monkeypatch.delenv("LG_INSTRUMENT")
    with pytest.raises(ConfigError, match="LG_INSTRUMENT") as caught:
        read_environment(file)
    assert caught.value.line == _line(file, "virtual-$LG_INSTRUMENT")


def test_an_unknown_card_model_is_named_with_its_line(tmp_path: Path) -> None:
    file = _changed(tmp_path, "        simulated: true\n", "        simulated: true\n        card_model: floppy\n")
    with pytest.raises(ConfigError, match="no card model 'floppy'") as caught:
        read_environment(file)
    assert caught.value.line == _line(file, "floppy")


@pytest.mark.parametrize("file", sorted((project_dir() / "env").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_file_in_env_is_right(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_INSTRUMENT", "iio")
    environment = read_environment(file)
    assert environment.profile.scratch_device.startswith(f"/dev/{environment.profile.card_device}")
    assert environment.profile.simulated == (environment.virtual_lab is not None)
    if environment.profile.guest_time:
        # labgrid types a line again where nothing came for so long: on a busy host, one that the board counts.
        shell = yaml.safe_load(file.read_text().replace("!template", ""))["targets"]["main"]["drivers"]["ShellDriver"]
        assert shell["await_login_timeout"] >= shell["login_timeout"]


@pytest.mark.parametrize(
    ("old", "new", "at", "what", "hint"),
    [
        (
            "MeterDriver:",
            "MeterDrvier:",
            "MeterDrvier",
            "unknown driver class 'MeterDrvier'",
            "did you mean MeterDriver",
        ),
        ("RemotePlace:", "RemotPlace:", "RemotPlace", "unknown resource class", "did you mean RemotePlace"),
        ("login_prompt:", "login_promt:", "login_promt", "no argument 'login_promt'", "did you mean login_prompt"),
        ("login_timeout: 60", "login_timeout: soon", "soon", "login_timeout: 'soon' is wrong", "must be <class 'int'>"),
        ("simulated: true", "simulated: maybe", "maybe", "simulated: 'maybe' is wrong", "bool"),
        ("boot_timeout: 180", "boot_timeout: 0", "boot_timeout: 0", "boot_timeout: 0 is wrong", "must be > 0"),
        ("size_factor: 0.0625", "size_factor: much", "much", "size_factor: 'much' is wrong", "float"),
        ("copy-2015: 0.0065", "copy-2015: 2", "copy-2015: 2", "size_factors: ", "up to 1"),
        (
            "{device: sda, size_mib: 512}",
            "sda",
            "stick: sda",
            "storages: {'stick': 'sda', 'nand'",
            "{device: sda, size_mib: ",
        ),
        (
            "sda, size_mib: 512",
            "/dev/sda, size_mib: 512",
            "/dev/sda",
            "{'stick': {'device': '/dev/sda'",
            "stick needs its",
        ),
        ("sda, size_mib: 512", "sda", "device: sda}", "{'stick': {'device': 'sda'}, 'nand'", "and its size"),
        (
            "stick: {device: sda,",
            "card: {device: sda,",
            "card: {",
            "{'card': {",
            "card cannot be the name of a further",
        ),
        ("stick: {device: sda,", "a+b: {device: sda,", "a+b: {", "{'a+b': {", "a plus sign names layers"),
        (
            "storages:\n",
            "storages: [sda]\n        board_state:\n",
            "[sda]",
            "['sda'] is wrong",
            "it maps names",
        ),
        (
            "memory_mib: 512",
            "log_storage: stik",
            "log_storage: stik",
            "log_storage: storages has no 'stik'",
            "it has stick",
        ),
        ("memory_mib: 512", "log_storage: nand", "log_storage: nand", "nand is an MTD device", "needs a block device"),
        (
            "storages:\n          stick: {device: sda, size_mib: 512}",
            "log_storage: stick\n        storages:\n          stick: {device: sda, size_mib: 64}",
            "log_storage: stick",
            "stick has 64 MiB, and the log up to 160",
            "a larger device",
        ),
        ("memory_mib: 512", "memory_mib: -1", "memory_mib: -1", "memory_mib: -1 is wrong", "must be >= 0"),
        ("        recipe: imx6ul\n", "", "BoardStrategy", "BoardStrategy lacks recipe", "add 'recipe: ...'"),
        ("BoardStrategy:", "ShellStrategy:", "ShellStrategy", "ShellStrategy does not know cards", "use BoardStrategy"),
        ("USBSDMuxDriver: {}", "USBSDMuxDriver:", "USBSDMuxDriver", "has no arguments", "'USBSDMuxDriver: {}'"),
        ("- fsjoule.lab", "- fsjoule.labb", "fsjoule.labb", "'fsjoule.labb' cannot be imported", "correct the name"),
        ("targets:", "target:", "imports", "the key 'targets' is missing", "add targets"),
        ("  main:", "  host: {}\n  mian:", "host: {}", "the key 'main' is missing", "or rename a target"),
        ("imports:", "imports: [", "", "not YAML", "indent with spaces"),
    ],
)
def test_a_broken_file_says_line_and_what_would_be_right(
    tmp_path: Path, *, old: str, new: str, at: str, what: str, hint: str
) -> None:
    file = _changed(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        read_environment(file)
    error = caught.value
    assert what in error.what
    assert hint in (error.hint or "")
    assert error.file == file
    if "not YAML" not in what:
        assert error.line == _line(file, at)
    assert error.line is not None
    assert error.exit_code == 2


def test_a_missing_strategy_is_said(tmp_path: Path) -> None:
    text = _VIRTUAL.read_text()
    file = tmp_path / "env.yaml"
    file.write_text(text[: text.index("      BoardStrategy:")])
    with pytest.raises(ConfigError, match="there is no strategy") as caught:
        read_environment(file)
    assert "BoardStrategy" in (caught.value.hint or "")


@pytest.mark.parametrize("device", ["mmcblk1", "mmcblk1p2"])
def test_the_card_is_no_further_storage(tmp_path: Path, device: str) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(_VIRTUAL.read_text().replace("stick: {device: sda,", f"stick: {{device: {device},"))
    with pytest.raises(ConfigError, match=f"stick is {device}, on the boot card") as caught:
        read_environment(file)
    assert caught.value.line is not None


@pytest.mark.parametrize(("text", "what"), [("", "empty"), ("- a\n- b\n", "must be a mapping"), ("a: [\n", "not YAML")])
def test_a_file_of_something_else(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=what):
        read_environment(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_environment(tmp_path / "none.yaml")


def test_lists_of_drivers_are_read_as_labgrid_reads_them(tmp_path: Path) -> None:
    text = _VIRTUAL.read_text()
    begin = text.index("    drivers:\n") + len("    drivers:\n")
    listed = text[begin:].replace("\n      ", "\n        ").replace("      ", "      - ", 1)
    lines = [
        f"      - {line[8:]}" if line.startswith("        ") and line[8] not in " #" else line
        for line in listed.splitlines()
    ]
    file = tmp_path / "env.yaml"
    file.write_text(text[:begin] + "\n".join(lines) + "\n")
    assert read_environment(file).profile == read_environment(_VIRTUAL).profile
