"""A labgrid target outside pytest, for commands that need an environment file's meter or board."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from labgrid import Environment, Target
from labgrid.config import Config
from labgrid.pytestplugin.hooks import LABGRID_ENV_KEY
from labgrid.resource.common import ResourceManager
from labgrid.resource.remote import RemotePlaceManager
from labgrid.util.ssh import sshmanager

from fsjoule.errors import ConfigError, Part
from fsjoule.lab.environment import EnvironmentFile, board_target, let_labgrid_run
from fsjoule.lab.flashers import DiskImage
from fsjoule.lab.lease import Guard
from fsjoule.lab.placenames import find_places
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.translate import lab_errors, time_limit

_KILLED_S: Final = 30.0
_POWER_TIMEOUT_S: Final = 30.0
_SESSION_END_S: Final = 5.0
PROCESS_FOLDER: Final = "lg-fsj-"  # begins a folder of a board's process, which has its connections'
_FOLDERS: Final = ("lg-con-", "lg-ssh-", PROCESS_FOLDER)
# A connection that is closed, or just being made, has a folder and no socket, and its process, which may be another
# user of labgrid, wants the folder to the end.
_LEFT_S: Final = 24 * 3600.0


def wants_virtual_lab(environment: EnvironmentFile) -> bool:
    """Whether to bring up a virtual lab: the file names one, and no coordinator is given."""
    named = environment.coordinator or os.environ.get("LG_COORDINATOR")
    return environment.virtual_lab is not None and not named


def check_places(environment: EnvironmentFile) -> None:
    """Check that an environment file's board exists and is free, before anything is built for it.

    Raises ConfigError, PlaceHeldError, LabError. It skips a virtual lab that has yet to be brought up.
    """
    if not wants_virtual_lab(environment):
        with variables(environment.variables):
            find_places(environment.places, environment.wanted)


@contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def labgrid_target(environment_file: Path) -> Generator[Target]:
    """The board's target of an environment file whose places are held. Raises ConfigError without it, LabError."""
    with ExitStack() as closing:
        closing.callback(close_ssh)
        with lab_errors(f"reading {environment_file}"):
            made: Any = Environment
            let_labgrid_run(cast("Any", Config)(str(environment_file)).get_imports())
            environment = made(config_file=str(environment_file))
            targets = environment.config.get_targets()
        name = board_target(targets)
        if name is None or not targets[name]:
            raise ConfigError("there is no target 'main'", file=environment_file, hint="see env/virtual.yaml")
        closing.callback(_leave_coordinator, environment)
        closing.callback(environment.cleanup)
        with lab_errors("finding the board's resources", Part.EXPORTER):
            target = environment.get_target(name)
        yield target


def _leave_coordinator(environment: Environment) -> None:
    """End labgrid's connection to the coordinator, unless targets of another environment use it.

    labgrid keeps one for the process: the next target would be looked for in a lab that may be down.
    """
    manager: Any = ResourceManager.instances.get(RemotePlaceManager)
    if manager is None:
        return
    manager.resources = [each for each in manager.resources if each.target.env is not environment]
    if manager.resources:
        return
    del ResourceManager.instances[RemotePlaceManager]
    if manager.session is not None and not manager.loop.is_running():
        with suppress(TimeoutError):  # nobody waits for it
            manager.loop.run_until_complete(asyncio.wait_for(_end_session(manager.session), _SESSION_END_S))


async def _end_session(session: Any) -> None:  # noqa: ANN401 - labgrid's ClientSession
    await session.stop()
    await session.close()


def switch_off(environment_file: Path) -> None:
    """Switch the board of an environment file off. This user must have its place. Raises LabError."""
    with _strategy(environment_file) as strategy:
        strategy.transition("off")


def switch_on(environment_file: Path) -> None:
    """Switch the board on, whatever is on its card. This user must have its place. Raises LabError."""
    with _strategy(environment_file) as strategy:
        _power_on(strategy)


def restart(environment_file: Path) -> None:
    """Switch the board off, for as long as it needs, and on again. Raises LabError."""
    with _strategy(environment_file) as strategy:
        strategy.transition("off")
        time.sleep(strategy.off_time)
        _power_on(strategy)


def flash(environment_file: Path, card: DiskImage) -> None:
    """Switch the board off and bring an image onto its card. Raises LabError."""
    with _strategy(environment_file) as strategy:
        strategy.card = card
        strategy.transition("flashed")


@contextmanager
def _strategy(environment_file: Path) -> Generator[BoardStrategy]:
    with labgrid_target(environment_file) as target:
        yield target.get_driver("BoardStrategy")


def _power_on(strategy: BoardStrategy) -> None:
    doing = "switching the board on"
    with time_limit(_POWER_TIMEOUT_S, doing), lab_errors(doing):
        cast("Target", strategy.target).activate(strategy.power)
        strategy.power.on()


def read_again(config: Any) -> None:  # noqa: ANN401 - pytest's; it is not known here
    """Let labgrid's plugin of pytest read its environment file with the variables of now, before it makes a target.

    It has read the file before a place was chosen by its tags. Raises LabError.
    """
    with lab_errors("reading the environment file"):
        environment, made = config.stash[LABGRID_ENV_KEY], cast("Any", Config)
        environment.config = made(environment.config_file)
        if config.option.lg_coordinator is not None:
            environment.config.set_option("coordinator_address", config.option.lg_coordinator)


@contextmanager
def target_beside_others(config: Any, name: str) -> Generator[Target]:  # noqa: ANN401
    """A target of the file that labgrid's plugin of pytest has read; the others, at other places, are not made."""
    target = config.stash[LABGRID_ENV_KEY].get_target(name)
    try:
        yield target
    finally:
        target.cleanup()
        close_ssh()


def ask_with(config: Any, ask: Callable[[str], None]) -> None:  # noqa: ANN401 - pytest's; it is not known here
    """Let labgrid's drivers that need a hand (ManualPowerDriver) ask so: their `input` does not reach past pytest."""
    config.stash[LABGRID_ENV_KEY].interact = ask


def close_ssh() -> None:
    """Close labgrid's connections by ssh, which replaces no error and leaves no ssh behind.

    labgrid gives each two seconds to end. A busy computer takes longer, and labgrid's error would hide the first cause.
    """
    manager: Any = sshmanager
    for connection in list(manager._connections.values()):  # noqa: SLF001 - it lists them nowhere else
        master = connection._master  # noqa: SLF001 - it forgets a process that did not end
        try:
            if connection.isconnected():
                connection.disconnect()
        except subprocess.SubprocessError:
            if master is not None:
                master.kill()
                master.wait(_KILLED_S)
    sshmanager.close_all()


def remove_left_connections() -> None:
    """Remove the folders of this user's connections by ssh that nobody has used for a day.

    labgrid makes one for each connection and removes it at its end, which a process that is killed does not reach.
    """
    with suppress(OSError):
        bound = Path("/proc/net/unix").read_text(errors="replace")
        for folder in Path(tempfile.gettempdir()).iterdir():
            if not folder.name.startswith(_FOLDERS):
                continue
            found = folder.lstat()
            old = time.time() - found.st_mtime > _LEFT_S
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if ours and old and f" {folder}/" not in bound:
                shutil.rmtree(folder, ignore_errors=True)


# Before labgrid's own: what was registered last is called first.
atexit.register(close_ssh)


def guard(target: Target, guard: Guard) -> None:
    """Give a target's strategies the guard to ask before they do anything to the board."""
    for driver in target.drivers:
        if isinstance(driver, BoardStrategy):
            driver.guard = guard
