"""BoardStrategy without fsjoule's bench: labgrid's own fixtures, and labgrid-client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from fsjoule import images
from fsjoule.host.paths import project_dir
from fsjoule.lab import variables
from fsjoule.virtual.lab import lab

_CLIENT = Path(sys.executable).parent / "labgrid-client"
_VIRTUAL = project_dir() / "env" / "virtual.yaml"

_TESTS = """
import pytest
from labgrid.exceptions import InvalidConfigError

def test_flashed_needs_an_image(strategy, request):
    if strategy.image or request.config.option.lg_initial_state:
        pytest.skip("there is one, or it is booted")
    with pytest.raises(InvalidConfigError, match="no card image was chosen"):
        strategy.transition("flashed")

def test_booted(strategy):
    strategy.transition("booted")
    output, _, code = strategy.shell.run("uname -r; grep -c . /proc/version")
    assert code == 0
    assert output[0].startswith("6.1")
    with open(__file__ + ".flashed", "w") as file:
        file.write(str(strategy._on_card_sha256))

def test_off(strategy, request):
    if request.config.getoption("-k") != "booted":
        strategy.transition("off")
"""


@pytest.fixture(scope="module")
def acquired(module_state: Path) -> Generator[Path]:
    """A lab whose place is acquired by labgrid-client."""
    handle = lab.up("virtual", owner_pid=os.getpid())
    with variables(handle.environment):
        _client("acquire")
        yield module_state
    lab.down("virtual")


@pytest.fixture(scope="module")
def card() -> Path:
    return images.build_card("6.1", "ext4").path


@pytest.fixture
def with_image(card: Path, tmp_path: Path) -> Path:
    return _named(tmp_path, card)


@pytest.fixture(scope="module")
def on_card(acquired: Path, card: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The card image is on the card of the lab's board, which is off."""
    assert acquired
    named = _named(tmp_path_factory.mktemp("card"), card)
    done = _client("-c", str(named), "-s", "flashed", "power", "get")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _power() == "off"


def _named(folder: Path, card: Path) -> Path:
    """An environment file that names an image."""
    file = folder / "named.yaml"
    text = _VIRTUAL.read_text().replace("        board: virtual\n", "        board: virtual\n        image: card\n")
    file.write_text(text.replace("targets:\n", f"images:\n  card: {card}\ntargets:\n", 1))
    return file


def _client(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_CLIENT, *arguments], capture_output=True, text=True, timeout=400, check=False)


def _power() -> str:
    status = lab.status("virtual")
    assert status.board is not None
    return status.board["power"]


def _plain_test(folder: Path, environment: Path, *options: str) -> str:
    (folder / "test_plain.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *options]
    done = subprocess.run(
        [*command, "--lg-env", str(environment), "test_plain.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_image_that_the_environment_file_names_is_flashed_and_booted(
    acquired: Path, with_image: Path, tmp_path: Path
) -> None:
    assert acquired
    assert "2 passed, 1 skipped" in _plain_test(tmp_path, with_image)
    assert len((tmp_path / "test_plain.py.flashed").read_text()) == 64
    assert _power() == "off"


@pytest.mark.slow
@pytest.mark.usefixtures("on_card")
def test_without_one_the_board_boots_what_is_on_its_card(tmp_path: Path) -> None:
    """Labgrid's client does so in the next test."""
    assert "3 passed" in _plain_test(tmp_path, _VIRTUAL)
    assert (tmp_path / "test_plain.py.flashed").read_text() == "None"
    assert _power() == "off"


@pytest.mark.usefixtures("on_card")
def test_labgrid_client_brings_it_into_a_state_and_pytest_takes_it_over(tmp_path: Path) -> None:
    done = _client("-c", str(_VIRTUAL), "-s", "booted", "power", "get")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _power() == "on"
    assert "1 passed" in _plain_test(tmp_path, _VIRTUAL, "--lg-initial-state", "booted", "-k", "booted")
    assert _power() == "on"
    done = _client("-c", str(_VIRTUAL), "-s", "flashed", "power", "get")
    assert done.returncode == 1
    assert "no card image was chosen; name it in the environment file" in done.stderr
    assert "Traceback" not in done.stderr
    assert _power() == "on", "nothing was done"
    done = _client("-c", str(_VIRTUAL), "-s", "off", "power", "get")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _power() == "off"


def test_an_image_that_is_not_there_is_named(acquired: Path, with_image: Path) -> None:
    assert acquired
    with_image.write_text(with_image.read_text().replace("image: card", "image: disk"))
    done = _client("-c", str(with_image), "-s", "booted", "power", "get")
    assert done.returncode == 1
    assert "the environment file has no image 'disk'" in done.stderr
