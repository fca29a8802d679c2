"""What packages add: which come first, names that are there twice, packages that cannot be loaded."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from fsjoule import hooks
from fsjoule.errors import ConfigError
from fsjoule.hooks import CliCommand, Rows, hook


class _Point:
    """An entry point of a distribution that is not installed."""

    def __init__(self, package: str, load: Callable[[], object]) -> None:
        self.name, self.module, self.load = "hooks", package, load
        self.dist = type("_Distribution", (), {"name": package, "version": "1.0"})


def _plugin(*rows: object) -> ModuleType:
    plugin = ModuleType("stranger")

    @hook
    def fsjoule_commands() -> Iterator[object]:
        yield from rows

    plugin.fsjoule_commands = fsjoule_commands  # type: ignore[attr-defined]
    return plugin


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rows[CliCommand]]]:
    """Installs packages, given how each is loaded, and returns the table of commands."""

    def install(**packages: Callable[[], object]) -> Rows[CliCommand]:
        points = [_Point(name, load) for name, load in packages.items()]

        def entry_points(group: str) -> list[_Point]:
            assert group == "fsjoule"
            return points

        monkeypatch.setattr(hooks, "entry_points", entry_points)
        return Rows("command", "fsjoule_commands", CliCommand, lambda: [CliCommand("gate", "fsjoule.cli.gate:app")])

    hooks._manager.cache_clear()
    yield install
    hooks._manager.cache_clear()


def test_ours_come_before_those_of_packages(installed: Callable[..., Rows[CliCommand]]) -> None:
    rows = installed(a=lambda: _plugin(CliCommand("ours", "a:app")))
    assert list(rows) == ["gate", "kernelci", "lava", "ours"]
    assert [rows.owner(name) for name in ("gate", "lava", "ours")] == ["fsjoule", "fsjoule", "a 1.0"]


def test_a_name_that_is_there_twice_is_refused_with_both_owners(installed: Callable[..., Rows[CliCommand]]) -> None:
    rows = installed(a=lambda: _plugin(CliCommand("x", "a:app")), b=lambda: _plugin(CliCommand("x", "b:app")))
    with pytest.raises(ConfigError, match=r"command 'x' is there twice: from a 1\.0 and from b 1\.0") as caught:
        list(rows)
    assert "uninstall one of both" in str(caught.value)
    hooks._manager.cache_clear()
    with pytest.raises(ConfigError, match=r"from fsjoule and from a 1\.0"):
        list(installed(a=lambda: _plugin(CliCommand("lava", "a:app"))))


def _broken() -> object:
    raise ImportError("no module named mylab")


def _unknown() -> object:
    plugin = ModuleType("stranger")

    @hook
    def fsjoule_weather() -> None:
        """Belong to no version of fsjoule."""

    plugin.fsjoule_weather = fsjoule_weather  # type: ignore[attr-defined]
    return plugin


def _failing() -> object:
    def rows() -> Iterator[object]:
        yield CliCommand("lost", "a:app")
        raise OSError("no such file")

    plugin = ModuleType("stranger")
    plugin.fsjoule_commands = hook(rows)  # type: ignore[attr-defined]
    return plugin


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (_broken, "cannot be loaded: ImportError: no module named mylab"),
        (_unknown, "cannot be loaded: PluginValidationError: unknown hook 'fsjoule_weather'"),
        (_failing, "fsjoule_commands failed: OSError: no such file"),
        (
            lambda: _plugin("lava"),
            "fsjoule_commands failed: TypeError: it returned 'lava', which is no fsjoule.hooks.C",
        ),
    ],
)
def test_a_package_that_fails_is_left_out_with_a_warning(
    installed: Callable[..., Rows[CliCommand]],
    caplog: pytest.LogCaptureFixture,
    load: Callable[[], object],
    complaint: str,
) -> None:
    rows = installed(bad=load, good=lambda: _plugin(CliCommand("kept", "good:app")))
    with caplog.at_level(logging.WARNING, "fsjoule"):
        assert list(rows) == ["gate", "kernelci", "lava", "kept"]
    [warning] = caplog.messages
    assert warning.startswith(f"package bad 1.0 is left out: {complaint}")
    assert warning.endswith("(upgrade or uninstall it; its entry point is hooks)")


def test_every_hook_says_what_it_takes_with_an_example() -> None:
    specifications = [each for name, each in vars(hooks.Hooks).items() if name.startswith("fsjoule_")]
    # Not as it stands in the source: Python 3.13 takes the indentation out.
    says = {each.__name__: inspect.getdoc(each) or "" for each in specifications}
    assert [name for name, text in says.items() if "Example::\n\n    @hook" not in text] == []
    assert len(specifications) == 9


def test_an_entry_point_without_a_distribution_has_its_module_as_name() -> None:
    assert hooks._distribution(EntryPoint("hooks", "mylab.hooks", "fsjoule")) == "mylab.hooks"
