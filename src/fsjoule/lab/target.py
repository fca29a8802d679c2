"""A labgrid target outside of pytest: for commands that need the meter of an environment file, or its board."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from labgrid import Environment, Target
from labgrid.util.ssh import sshmanager

from fsjoule.errors import ConfigError
from fsjoule.lab.place import acquired_place
from fsjoule.lab.translate import lab_errors

_TARGET: Final = "main"


@contextmanager
def labgrid_target(environment_file: Path, say: Callable[[str], None]) -> Generator[Target]:
    """The target `main` of an environment file. Places of a coordinator that it names are held in the body.

    Raises ConfigError if there is no such target, PlaceHeldError if somebody else has the place, LabError.
    """
    with ExitStack() as closing:
        closing.callback(sshmanager.close_all)
        with lab_errors(f"reading {environment_file}"):
            made: Any = Environment
            environment = made(config_file=str(environment_file))
            config = environment.config.get_targets().get(_TARGET)
        if not config:
            raise ConfigError(f"there is no target {_TARGET!r}", file=environment_file, hint="see env/virtual.yaml")
        for place in _places(config.get("resources", {})):
            closing.enter_context(acquired_place(place, say=say))
        closing.callback(environment.cleanup)
        with lab_errors("finding the board's resources"):
            target = environment.get_target(_TARGET)
        yield target


def _places(resources: Any) -> Iterator[str]:  # noqa: ANN401 - YAML: a mapping, or a list of mappings
    """Names of the remote places among a target's resources."""
    for each in resources if isinstance(resources, list) else [resources]:
        for cls, arguments in each.items():
            if cls == "RemotePlace":
                yield str(arguments["name"])
            elif cls == "cls" and arguments == "RemotePlace":
                yield str(each["name"])
