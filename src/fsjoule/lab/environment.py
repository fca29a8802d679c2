"""Reads a labgrid environment file before labgrid does, so that errors in it have a line number.

labgrid reports `unknown driver class X` without a line, warns about unknown arguments, and fails much later if a
strategy is missing. Here the file's YAML tree, which has line numbers, is checked against labgrid's classes.
labgrid also learns only at the board's use which drivers the file lacks, and which resources its place lacks.
"""

from __future__ import annotations

import abc
import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from string import Template
from typing import Any, Final, cast

import attr
import yaml
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.resource import Resource
from labgrid.strategy import Strategy
from labgrid.util.yaml import Loader
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.host.toml_lines import parse_toml, wrong_value
from fsjoule.lab.arguments import policy_of, storages_of
from fsjoule.lab.flashers import FlasherProtocol
from fsjoule.lab.meterdriver import METERS
from fsjoule.lab.reservation import AT_ONCE, PlaceRequest
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.model import MIB, BoardProfile, CardModel, Reach, Storage
from fsjoule.model.medium import Medium
from fsjoule.model.workload import CRASH_LOG_BYTES

_MAIN: Final = "main"
_LOADER: Final = "boot_loader"
_VIRTUAL_LAB: Final = "fsjoule_virtual_lab"
_VIRTUAL_BOARD: Final = "fsjoule_virtual_board"
_COORDINATOR: Final = "coordinator_address"
_REMOTE_PLACE: Final = "RemotePlace"
_SHELL: Final = "ShellDriver"
_LOGIN: Final = ("login_prompt", "username", "prompt")
_CARD_MODEL: Final = "card_model"
_PLACE: Final = "LG_PLACE"
_NOT_ARGUMENTS: Final = frozenset({"cls", "name", "bindings"})
_ADVICE: Final = {
    "PowerProtocol": "add NetworkPowerDriver: {} for an outlet",
    "ConsoleProtocol": "add SerialDriver with bindings: {port: default}",
    "FlasherProtocol": "add a flasher and its drivers, as SdMuxFlasher with USBSDMuxDriver and USBStorageDriver",
    "UBootDriver": "add UBootDriver with U-Boot's prompt, '\\n=> '",
    "ShellDriver": "add ShellDriver with the login's prompts",
    "USBSDMuxDriver": "add USBSDMuxDriver: {}, the mux of the card",
    "USBStorageDriver": "add USBStorageDriver: {}, the mux's card reader",
}
_CARD_MODEL_ADAPTER: Final = TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(CardModel))


@dataclass(frozen=True, slots=True)
class Login:
    """The console's prompts, as regular expressions, and the answers to them: ShellDriver's arguments."""

    login_prompt: str
    username: str
    prompt: str
    password: bool


@dataclass(frozen=True, slots=True)
class NamedDriver:
    """A driver of the file: its class, its line, its arguments' names, and the names of its `bindings`, by role."""

    cls: str
    line: int
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    arguments: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EnvironmentFile:
    """The settings that fsjoule takes from an environment file. `virtual_lab` names the lab to bring up for it.

    `virtual_board` is the config in labgrid/virtual of that lab's board, unless it is the default. `places` are the
    names of its remote places as written, with environment variables. `coordinator` is labgrid's own option for the
    coordinator's address; it wins over LG_COORDINATOR. `login` is None without a ShellDriver. With `boot_loader` the
    board starts from the one on its card. `resources` are the classes of its resources. `without_mux`: what becomes of
    the card without an SD mux; empty with one. `wanted` is the user's: how a place is chosen and awaited. `target` is
    the board's, `alone` if the file has no other.
    """

    path: Path
    profile: BoardProfile
    virtual_lab: str | None
    virtual_board: str | None = None
    places: tuple[str, ...] = ()
    coordinator: str | None = None
    login: Login | None = None
    drivers: tuple[NamedDriver, ...] = ()
    boot_loader: bool = False
    resources: tuple[str, ...] = ()
    without_mux: str = ""
    wanted: PlaceRequest = AT_ONCE
    target: str = _MAIN
    alone: bool = True
    imports: tuple[str, ...] = ()

    @property
    def has_meter(self) -> bool:
        return any(issubclass(target_factory.drivers[driver.cls], METERS) for driver in self.drivers)

    @property
    def does_without(self) -> tuple[str, ...]:
        """A line for each part of a full lab that this board lacks, with the consequence."""
        meter = () if self.has_meter else ("without a meter: throughput only, no energy",)
        by_hand = any(driver.cls == "ManualPowerDriver" for driver in self.drivers)
        outlet = ("without an outlet: somebody must switch the board when asked",) if by_hand else ()
        return (*meter, *outlet, *([f"without an SD mux: {self.without_mux}"] if self.without_mux else []))

    @property
    def variables(self) -> dict[str, str]:
        """Values of labgrid's variables that the file sets."""
        return {"LG_COORDINATOR": self.coordinator} if self.coordinator else {}


@dataclass(frozen=True, slots=True)
class _Entry:
    cls: str
    node: yaml.Node
    arguments: dict[str, tuple[yaml.Node, yaml.Node]]


def read_environment(path: Path, wanted: PlaceRequest = AT_ONCE) -> EnvironmentFile:
    """Check an environment file and return fsjoule's part. Raises ConfigError with file, line and advice."""
    return replace(_Reader(path).read(), wanted=wanted)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> EnvironmentFile:
        root = self._compose()
        top = self._mapping(root, "the file")
        imports = self._items(top.get("imports"))
        for place, node in enumerate(imports):
            if str(node.value).endswith(".py") and node.value in [each.value for each in imports[:place]]:
                raise self._wrong(node, f"{node.value!r} is imported twice", "labgrid would run it again: keep one")
            self._import(node)
        targets = self._required(top, root, "targets", "add targets: main: ...")
        named = self._mapping(targets, "targets")
        name = board_target(named) or _MAIN
        target_node = self._required(named, targets, name, "add main: with resources and drivers, or rename a target")
        target = self._mapping(target_node, f"the target {name!r}")
        resources = list(self._entries(target.get("resources"), "resource", target_factory.resources))
        drivers = list(self._entries(target.get("drivers"), "driver", target_factory.drivers))
        flasher = next((cls for cls in map(_driver, drivers) if issubclass(cls, FlasherProtocol)), None)
        reach, without_mux = (Reach.CARD, "") if flasher is None else (flasher.reach, flasher.without_mux)
        strategy = self._strategy(drivers, target.get("drivers") or target_node)
        for entry in drivers:
            self._check_arguments(entry)
        self._check_order(drivers)
        options = self._mapping(top["options"], "options") if "options" in top else {}
        lab, board, coordinator = (
            str(self._scalar(options[key])) if key in options else None
            for key in (_VIRTUAL_LAB, _VIRTUAL_BOARD, _COORDINATOR)
        )
        places = tuple(self._place(entry) for entry in resources if entry.cls == _REMOTE_PLACE)
        shell = next((self._login(entry) for entry in drivers if entry.cls == _SHELL), None)
        listed = tuple(
            NamedDriver(entry.cls, entry.node.start_mark.line + 1, self._bindings(entry), frozenset(entry.arguments))
            for entry in drivers
        )
        loader = _LOADER in strategy.arguments and bool(self._scalar(strategy.arguments[_LOADER][1]))
        profile = replace(self._profile(strategy), reach=reach)
        return EnvironmentFile(
            *(self._path, profile, lab, board, places, coordinator, shell, listed, loader),
            resources=tuple(entry.cls for entry in resources),
            without_mux=without_mux,
            target=name,
            alone=len(named) == 1,
            imports=tuple(str(node.value) for node in imports),
        )

    # ------------------------------------------------------------------------------------------------- the YAML tree

    def _compose(self) -> yaml.Node:
        try:
            with self._path.open(encoding="utf-8") as file:
                root = yaml.compose(file, Loader=Loader)
        except (OSError, UnicodeDecodeError) as error:
            hint = "env/virtual.yaml is for the virtual board; env/boards/imx6ul-evk.yaml is an example for a real one"
            raise ConfigError(f"the environment file cannot be read: {error}", file=self._path, hint=hint) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(part for part in (error.context, error.problem) if part)
            line = None if mark is None else mark.line + 1
            hint = "YAML: indent with spaces, close quotes and brackets"
            raise ConfigError(f"not YAML: {what}", file=self._path, line=line, hint=hint) from error
        if root is None:
            raise ConfigError("the environment file is empty", file=self._path, hint="start from env/virtual.yaml")
        return root

    def _wrong(self, node: yaml.Node, what: str, hint: str) -> ConfigError:
        return ConfigError(what, file=self._path, line=node.start_mark.line + 1, hint=hint)

    def _mapping(self, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, f"{what} must be a mapping (key: value)", "start from env/virtual.yaml")
        return {str(key.value): value for key, value in node.value}

    def _required(self, mapping: dict[str, yaml.Node], node: yaml.Node, key: str, right: str) -> yaml.Node:
        if key not in mapping:
            raise self._wrong(node, f"the key {key!r} is missing", right)
        return mapping[key]

    def _items(self, node: yaml.Node | None) -> list[yaml.Node]:
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._wrong(node, "expected a list", "write each entry as '- entry'")
        return list(node.value)

    def _scalar(self, node: yaml.Node) -> Any:  # noqa: ANN401 - YAML has many types
        """The value of a node as labgrid reads it, with its templates' variables; LG_PLACE may be set later."""
        loader = Loader("")
        try:
            value = loader.construct_object(node, deep=True)
        finally:
            loader.dispose()
        return self._resolved(node, value)

    def _resolved(self, node: yaml.Node, value: Any) -> Any:  # noqa: ANN401
        match value:
            case Template():
                labgrids = {name: text for name, text in os.environ.items() if name.startswith("LG_")}
                known = {_PLACE: f"${_PLACE}", **labgrids, "BASE": str(self._path.absolute().parent)}
                try:
                    return value.substitute(known)
                except (KeyError, ValueError) as error:
                    hint = "labgrid's templates know BASE, the file's folder, and variables LG_* that are set"
                    raise self._wrong(node, f"the template {value.template!r} is wrong: {error}", hint) from error
            case dict():
                return {key: self._resolved(node, each) for key, each in cast("dict[object, object]", value).items()}
            case list():
                return [self._resolved(node, each) for each in cast("list[object]", value)]
            case _:
                return value

    # ------------------------------------------------------------------------------------------ resources and drivers

    def _import(self, node: yaml.Node) -> None:
        name = str(node.value)
        # As labgrid resolves it.
        path = self._path.absolute().parent / os.path.expandvars(os.path.expanduser(name))  # noqa: PTH111
        try:
            if path.suffix == ".py":
                _run(path)
            else:
                importlib.import_module(name)
        except (Exception, SystemExit) as error:
            said = "it ends the process" if isinstance(error, SystemExit) else str(error) or type(error).__name__
            hint = "correct the name" if isinstance(error, (ImportError, OSError)) else "correct that file"
            raise self._wrong(node, f"{name!r} cannot be imported: {said}", hint) from error

    def _entries(self, node: yaml.Node | None, kind: str, known: Iterable[str]) -> Iterator[_Entry]:
        """Accept labgrid's forms: `Class: {arguments}`, a list of such mappings, or of mappings with a key `cls`."""
        if node is None:
            return
        if isinstance(node, yaml.MappingNode):
            pairs = list(node.value)
        else:
            pairs = [pair for item in self._items(node) for pair in self._pairs(item)]
        for key, value in pairs:
            if not isinstance(value, yaml.MappingNode):
                raise self._wrong(key, f"{key.value} has no arguments", f"without arguments write '{key.value}: {{}}'")
            arguments = {str(name.value): (name, content) for name, content in value.value}
            cls_node = arguments["cls"][1] if "cls" in arguments else key
            if cls_node.value not in known:
                raise self._wrong(cls_node, f"unknown {kind} class {cls_node.value!r}", _nearest(cls_node.value, known))
            yield _Entry(str(cls_node.value), cls_node, arguments)

    def _pairs(self, item: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
        if not isinstance(item, yaml.MappingNode) or not item.value:
            raise self._wrong(item, "an entry of the list must be a mapping", "write '- Class: {arguments}'")
        if any(key.value == "cls" for key, _ in item.value):
            return [(item.value[0][0], item)]
        if len(item.value) > 1:
            raise self._wrong(item, "two classes in one entry of the list", "begin each with '- '")
        return list(item.value)

    def _check_order(self, drivers: list[_Entry]) -> None:
        """Drivers are made in the order of the file: what comes later is not there for an optional binding."""
        for place, entry in enumerate(drivers):
            wanted = [each for each in _driver(entry).bindings.values() if isinstance(each, set) and None in each]
            optional = [cls for each in wanted for cls in _classes(each) if cls is not None]
            for later in drivers[place + 1 :]:
                if issubclass(_driver(later), tuple(optional)):
                    hint = f"move {later.cls} in front of {entry.cls}"
                    raise self._wrong(later.node, f"{later.cls} comes after {entry.cls}, which would not use it", hint)

    def _check_arguments(self, entry: _Entry) -> None:
        cls = target_factory.drivers[entry.cls]
        known = {a.name: a for a in attr.fields(cls) if a.init and a.name not in ("target", "name")}
        for name, (node, value) in entry.arguments.items():
            if name in _NOT_ARGUMENTS:
                continue
            if name not in known:
                raise self._wrong(node, f"{entry.cls} has no argument {name!r}", _nearest(name, known))
            self._check_value(entry, known[name], value)
        missing = [a.name for a in known.values() if a.default is attr.NOTHING and a.name not in entry.arguments]
        if missing:
            raise self._wrong(entry.node, f"{entry.cls} lacks {', '.join(missing)}", f"add '{missing[0]}: ...' to it")

    def _check_value(self, entry: _Entry, attribute: attr.Attribute[Any], node: yaml.Node) -> None:
        value = self._scalar(node)
        convert = cast("Callable[[Any], Any] | None", attribute.converter)
        try:
            value = value if convert is None else convert(value)
            if attribute.validator is not None:
                attribute.validator(None, attribute, value)
        except AttributeError:
            return  # it looks at the driver's other arguments, and there is no driver yet: labgrid will ask
        except (TypeError, ValueError) as error:
            reason = str(error.args[0]) if error.args else str(error)
            raise self._wrong(node, f"{entry.cls}: {attribute.name}: {_plain(value)!r} is wrong", reason) from error

    def _strategy(self, drivers: list[_Entry], node: yaml.Node) -> _Entry:
        strategies = [entry for entry in drivers if issubclass(target_factory.drivers[entry.cls], Strategy)]
        if not strategies:
            raise self._wrong(node, "there is no strategy", "add BoardStrategy to the drivers, as in env/virtual.yaml")
        if len(strategies) > 1:
            raise self._wrong(strategies[1].node, "there are two strategies", "keep one: BoardStrategy")
        [entry] = strategies
        if not issubclass(target_factory.drivers[entry.cls], BoardStrategy):
            raise self._wrong(entry.node, f"the strategy {entry.cls} does not know cards", "use BoardStrategy")
        return entry

    def _bindings(self, entry: _Entry) -> dict[str, str]:
        if "bindings" not in entry.arguments:
            return {}
        named = self._mapping(entry.arguments["bindings"][1], f"bindings of {entry.cls}")
        return {role: str(self._scalar(value)) for role, value in named.items()}

    def _place(self, entry: _Entry) -> str:
        if "name" not in entry.arguments:
            raise self._wrong(entry.node, "the place has no name", "name: !template $LG_PLACE")
        return str(entry.arguments["name"][1].value)

    def _login(self, entry: _Entry) -> Login:
        written = {name: str(self._scalar(value)) for name, (_, value) in entry.arguments.items() if name in _LOGIN}
        password = "password" in entry.arguments
        return Login(*(written.get(name, "") for name in _LOGIN), password=password)

    def _profile(self, entry: _Entry) -> BoardProfile:
        defaults: dict[str, Any] = {each.name: each.default for each in attr.fields(BoardStrategy)}
        values = {name: value.factory() if hasattr(value, "factory") else value for name, value in defaults.items()}
        values |= {name: self._scalar(value) for name, (_, value) in entry.arguments.items()}
        return BoardProfile(
            name=values["board"],
            recipe=values["recipe"],
            simulated=values["simulated"],
            mark_device=values["mark_device"],
            card_device=values["card_device"],
            scratch_device=values["scratch_device"],
            purge=values["purge"],
            size_factor=float(values["size_factor"]),
            window_excess_s=float(values["window_excess"]),
            guest_time=values["guest_time"],
            count_instructions=values["count_instructions"],
            card_model=self._card_model(entry),
            size_factors={name: float(factor) for name, factor in values["size_factors"].items()},
            storages=(storages := self._storages(entry, str(values["card_device"]))),
            log_storage=self._log_storage(entry, storages),
            memory_bytes=values["memory_mib"] * MIB,
            marks_on_console=values["marks_on_console"],
            scratch_bytes=values["scratch_mib"] * MIB,
            state_policy=policy_of(values["board_state"]),
        )

    def _storages(self, entry: _Entry, card_device: str) -> dict[str, Storage]:
        if "storages" not in entry.arguments:
            return {}
        _, value = entry.arguments["storages"]
        try:
            storages = storages_of(self._scalar(value), read_card_model)
        except ConfigError as error:
            raise self._wrong(value, error.what, error.hint or "slc-nand is one") from error
        for name, storage in storages.items():
            if storage.device.startswith(card_device):
                what = f"{name} is {storage.device}, on the boot card: the whole card would be overwritten"
                raise self._wrong(value, what, "to use the card's free space, set scratch_device")
        return storages

    def _log_storage(self, entry: _Entry, storages: dict[str, Storage]) -> str:
        if "log_storage" not in entry.arguments:
            return ""
        _, value = entry.arguments["log_storage"]
        name = str(self._scalar(value))
        storage = storages.get(name)
        if storage is None:
            blocks = [each for each, there in storages.items() if there.medium is Medium.BLOCK]
            there = f"it has {', '.join(blocks)}" if blocks else "for example stick: {device: sda, size_mib: 512}"
            raise self._wrong(value, f"log_storage: storages has no {name!r}", there)
        if storage.medium is not Medium.BLOCK:
            raise self._wrong(value, f"log_storage: {name} is an {storage.medium}", "the log needs a block device")
        if storage.size_bytes < CRASH_LOG_BYTES:
            what = (
                f"log_storage: {name} has {storage.size_bytes // MIB} MiB, and the log up to {CRASH_LOG_BYTES // MIB}"
            )
            raise self._wrong(value, what, "name a larger device, or leave log_storage out: the log is in memory then")
        return name

    def _card_model(self, entry: _Entry) -> CardModel | None:
        if _CARD_MODEL not in entry.arguments:
            return None
        node, value = entry.arguments[_CARD_MODEL]
        try:
            return read_card_model(str(self._scalar(value)))
        except ConfigError as error:
            raise self._wrong(node, error.what, error.hint or "emmc is one") from error


def board_target(names: Collection[str]) -> str | None:
    """The board's target among those of a file: `main`, as for labgrid, or the only one; None if that is not clear."""
    return _MAIN if _MAIN in names else next(iter(names)) if len(names) == 1 else None


def _run(file: Path) -> None:
    """Run a file of `imports` as labgrid does, once. Raises whatever it raises."""
    there = getattr(sys.modules.get(file.stem), "__file__", None)
    if there is not None and Path(there).resolve() == file.resolve():  # labgrid keeps a "./" of the name
        return
    loader = SourceFileLoader(file.stem, str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[file.stem] = module


def let_labgrid_run(imports: Iterable[str]) -> None:
    """Take the files among `imports` out of labgrid's register: it runs them again, and refuses a name that is there.

    Their classes stay known by their names until labgrid has put new ones in their places.
    """
    files = {Path(each).stem for each in imports if each.endswith(".py")}
    there = target_factory.all_classes
    for name in [name for name, cls in there.items() if cls.__module__ in files]:
        del there[name]


def _driver(entry: _Entry) -> type[Any]:
    return target_factory.drivers[entry.cls]


def _plain(value: object) -> object:
    """The value with plain mappings: labgrid's own kind is not fit to be shown."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[object]", value)]
    return value


def _nearest(value: str, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(value, list(choices), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"choose from: {', '.join(sorted(choices))}"


def missing_drivers(environment: EnvironmentFile) -> tuple[tuple[NamedDriver, str, str], ...]:
    """Bindings that no driver of the file can meet: the driver that has one, its words, and advice.

    Bindings to resources depend on the exporter, so they are not examined.
    """
    there = [target_factory.drivers[driver.cls] for driver in environment.drivers]
    found: list[tuple[NamedDriver, str, str]] = []
    for driver, cls in zip(environment.drivers, there, strict=True):
        for role, wanted in cls.bindings.items():
            classes = _classes(wanted)
            if any(one is None or issubclass(one, Resource) for one in classes):
                continue  # optional, or the exporter's
            choices = tuple(one for one in classes if issubclass(one, (Driver, abc.ABC)))
            if choices and not any(issubclass(other, choice) for other in there for choice in choices):
                names = " or ".join(sorted(choice.__name__ for choice in choices))
                advice = next(
                    (_ADVICE[c.__name__] for c in choices if c.__name__ in _ADVICE), f"add {names} to drivers"
                )
                found.append((driver, f"{driver.cls} needs {names} ({role}), and no driver of the file is one", advice))
    return tuple(found)


def missing_resources(environment: EnvironmentFile, offered: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The needs of drivers that neither the file nor its place meets. `offered`: the place's classes and names."""
    there = [target_factory.resources[cls] for cls in environment.resources]
    there += [target_factory.resources[cls] for cls, _ in offered if cls in target_factory.resources]
    names = {name for _, name in offered}
    found: list[str] = []
    for driver in environment.drivers:
        for role, wanted in target_factory.drivers[driver.cls].bindings.items():
            choices = tuple(_classes(wanted))
            if not choices or any(one is None or not issubclass(one, Resource) for one in choices):
                continue  # optional, or a driver may meet it
            name = driver.bindings.get(role)
            foreign = len(environment.resources) == len(environment.places)  # all of the place
            if not any(issubclass(each, choices) for each in there) or (foreign and name and name not in names):
                named = f" named {name!r}" if name else ""
                kinds = " or ".join(sorted(choice.__name__ for choice in choices))
                found.append(f"{driver.cls} needs {kinds}{named}")
    return tuple(found)


def _classes(wanted: Any) -> list[Any]:  # noqa: ANN401
    value = wanted.value if isinstance(wanted, Driver.NamedBinding) else wanted
    each = value if isinstance(value, set) else {value}
    return [target_factory.class_from_string(one) if isinstance(one, str) else one for one in each]


def read_card_model(name: str) -> CardModel:
    """The card model of that name. Raises ConfigError with the file and the wrong key."""
    file = project_dir() / "labgrid" / "virtual" / f"{name}.toml"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"there is no card model {name!r}: {error}", hint="emmc.toml is one") from error
    try:
        return _CARD_MODEL_ADAPTER.validate_python(parse_toml(text, file))
    except ValidationError as error:
        raise wrong_value(error, text, file, hint="emmc.toml has all keys") from error
