"""What packages add: suites, publications, filesystems, layers, instruments, recipes, renderers, importers, commands.

A package names a module in its entry points of the group `fsjoule`. The module has functions of the names below, each
with `@hook`. fsjoule's own publications and CI systems come the same way (`_OWN`); CONTRIBUTING.md is the guide.

Nothing is loaded before somebody asks for what a hook gives, so a module with hooks imports its work inside them. A
package that cannot be loaded is left out with a warning: what was measured must not depend on it.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from fsjoule.errors import ConfigError

if TYPE_CHECKING:
    from pluggy import PluginManager

GROUP: Final = "fsjoule"
# As pytest names its own plugins: a checkout has them, whatever its environment was set up for.
_OWN: Final = ("fsjoule.plugins.publications", "fsjoule.plugins.kernelci", "fsjoule.plugins.lava")

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])


def hook(function: F) -> F:
    """Mark a function as a package's answer to the hook of its name."""
    import pluggy

    return pluggy.HookimplMarker(GROUP)(function)


class Hooks:
    """The hooks. Each returns any number of rows, which are asked for once a process; none has arguments."""

    def fsjoule_suites(self) -> Iterable[Any]:
        """Suites (`fsjoule.suites.Suite`), and folders (`Path`) of suites as TOML files.

        Example::

            @hook
            def fsjoule_suites():
                return [Path(__file__).parent / "suites"]
        """
        raise NotImplementedError

    def fsjoule_publications(self) -> Iterable[Any]:
        """Publications that suites repeat: `fsjoule.suites.published.publication.Publication`.

        Example::

            @hook
            def fsjoule_publications():
                from mylab.berger import PUBLICATION

                return [PUBLICATION]
        """
        raise NotImplementedError

    def fsjoule_filesystems(self) -> Iterable[Any]:
        """Rows of filesystems: `fsjoule.model.filesystem.Filesystem`.

        Example::

            @hook
            def fsjoule_filesystems():
                from fsjoule.model.filesystem import Filesystem

                return [Filesystem("jfs", "jfs", ("mkfs.jfs", "-q"), modules=("jfs",))]
        """
        raise NotImplementedError

    def fsjoule_layers(self) -> Iterable[Any]:
        """Rows of layers, for `--stack`: `fsjoule.model.layer.Layer`.

        Example::

            @hook
            def fsjoule_layers():
                from fsjoule.model.layer import Layer, LayerPlace

                up = ("dmsetup", "create", "{node}", "--table", "0 65536 linear {device} 0")
                return [Layer("small", "32 MiB", LayerPlace.DEVICE, up, down=("dmsetup", "remove", "-f", "{node}"))]
        """
        raise NotImplementedError

    def fsjoule_instruments(self) -> Iterable[Any]:
        """Rows of instruments: `fsjoule.meter.instruments.InstrumentKind`.

        Example::

            @hook
            def fsjoule_instruments():
                from fsjoule.meter.instruments import InstrumentKind

                return [InstrumentKind("otii", "otii:", "otii:PORT", "an Otii", "mylab.otii", "mylab.otii_errors")]
        """
        raise NotImplementedError

    def fsjoule_recipes(self) -> Iterable[Any]:
        """Folders (`Path`) of recipes of card images, as the checkout's `images/`.

        Example::

            @hook
            def fsjoule_recipes():
                return [Path(__file__).parent / "images"]
        """
        raise NotImplementedError

    def fsjoule_renderers(self) -> Iterable[Any]:
        """Renderers of verdicts, for `--format NAME`: `fsjoule.report.renderers.Renderer`.

        Example::

            @hook
            def fsjoule_renderers():
                from fsjoule.report.renderers import Renderer

                return [Renderer("headline", lambda verdict, _file: verdict.headline)]
        """
        raise NotImplementedError

    def fsjoule_importers(self) -> Iterable[Any]:
        """Formats of `fsjoule import`: `fsjoule.runs.imports.importers.Importer`.

        Example::

            @hook
            def fsjoule_importers():
                from fsjoule.runs.imports.importers import Importer

                return [Importer("iozone", "iozone's table", "mylab.iozone:read")]
        """
        raise NotImplementedError

    def fsjoule_commands(self) -> Iterable[Any]:
        """Commands, or groups of commands, of the command line: `CliCommand`.

        Example::

            @hook
            def fsjoule_commands():
                return [CliCommand("mylab", "mylab.commands:app")]
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A command by its name. `app` is its `typer.Typer`, as `module:name`; `panel` is its place in the main help.

    The app of a single command has one of the same name and `group=False`.
    """

    name: str
    app: str
    panel: str = "Packages"
    group: bool = True


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """A row, and the package that it comes from."""

    owner: str
    row: T


class Rows(Mapping[str, N]):
    """A table by name: fsjoule's own rows, then those of packages, which are asked for at the first look.

    `read` makes rows of what a hook returns; without it those are rows already. Raises ConfigError at the first look if
    two rows have one name.
    """

    def __init__(
        self,
        what: str,
        hook_name: str,
        kind: type[N],
        own: Callable[[], Iterable[N]] = tuple,
        read: Callable[[Any], Iterable[N]] | None = None,
    ) -> None:
        self._what, self._hook, self._kind, self._own = what, hook_name, kind, own
        self._read = read

    @cached_property
    def _offers(self) -> dict[str, Offer[N]]:
        rows: dict[str, Offer[N]] = {}
        own = [Offer(GROUP, row) for row in self._own()]
        for offer in (*own, *offered(self._hook, self._kind, self._read)):
            known = rows.setdefault(offer.row.name, offer)
            if known is not offer:
                raise twice(self._what, offer.row.name, known.owner, offer.owner)
        return rows

    def __getitem__(self, name: str) -> N:
        return self._offers[name].row

    def __iter__(self) -> Iterator[str]:
        return iter(self._offers)

    def __len__(self) -> int:
        return len(self._offers)

    def owner(self, name: str) -> str:
        """The package of a row: `fsjoule`, or its name and version."""
        return self._offers[name].owner


def loaded(name: str, what: str, owner: str) -> Any:  # noqa: ANN401 - whatever a package has there
    """The module, or the `module:object`, of a row. Raises ConfigError if a package's cannot be loaded."""
    try:
        return pkgutil.resolve_name(name if ":" in name else f"{name}:")
    except Exception as error:
        if owner == GROUP:
            raise
        raise ConfigError(
            f"{what} of package {owner}: {name} cannot be loaded: {type(error).__name__}: {error}",
            hint="upgrade or uninstall the package",
        ) from error


def twice(what: str, name: str, *owners: str) -> ConfigError:
    return ConfigError(
        f"{what} {name!r} is there twice: from {' and from '.join(owners)}",
        hint="uninstall one of both packages, or ask its author for another name",
    )


def offered(hook_name: str, kind: type[T], read: Callable[[Any], Iterable[T]] | None = None) -> list[Offer[T]]:
    """What packages return for a hook, in the order of their names. What one cannot give is left out with a warning."""
    offers: list[Offer[T]] = []
    for found in getattr(_manager().hook, hook_name).get_hookimpls():
        try:
            rows = [row for each in found.function() for row in ([each] if read is None else read(each))]
            for row in rows:
                if not isinstance(row, kind):
                    raise TypeError(f"it returned {row!r}, which is no {kind.__module__}.{kind.__qualname__}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - a stranger's code
            _leave_out(found.plugin_name, f"{hook_name} failed", error)
        else:
            offers += [Offer(found.plugin_name.partition(":")[0], row) for row in rows]
    return sorted(offers, key=lambda offer: (offer.owner != GROUP, offer.owner))


@cache
def _manager() -> PluginManager:
    """All packages that could be loaded."""
    import pluggy

    specified = pluggy.HookspecMarker(GROUP)
    for name, specification in vars(Hooks).items():
        if name.startswith(f"{GROUP}_"):
            specified(specification)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(Hooks)
    for module in _OWN:
        manager.register(pkgutil.resolve_name(module), GROUP + ":" + module)
    for point in sorted(entry_points(group=GROUP), key=lambda each: (_distribution(each), each.name)):
        name = f"{_distribution(point)}:{point.name}"
        try:
            plugin = point.load()
            manager.register(plugin, name)
            manager.check_pending()
        except Exception as error:  # noqa: BLE001 - a stranger's code
            manager.unregister(name=name)
            _leave_out(name, "cannot be loaded", error)
    return manager


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def _leave_out(plugin_name: str, what: str, error: Exception) -> None:
    owner, _, module = plugin_name.partition(":")
    _log.warning(
        "package %s is left out: %s: %s: %s (upgrade or uninstall it; its entry point is %s)",
        *(owner, what, type(error).__name__, error, module),
    )
