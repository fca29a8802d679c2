"""Recipes of card images: `images/<name>.toml` and `images/boards/<name>.toml`, checked; errors have a line number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationError, model_validator

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS, filesystem
from fsjoule.hooks import offered, twice
from fsjoule.host.paths import project_dir
from fsjoule.host.toml_lines import config_text, line_of, parse_toml, path_of, wrong_value
from fsjoule.kernels.card_layout import FROZEN, BootLoader, CardLayout, Name, Sector, overlap
from fsjoule.layers import LAYERS
from fsjoule.model import DEFAULT_RECIPE, MarkLine
from fsjoule.model.filesystem import Filesystem, content_of

BOARDS: Final = "boards"  # in the recipes' folder: real boards, the catalogue
_BASES: Final = "base"
LED_MODULE: Final = "leds-gpio"
MARK_LED: Final = "/sys/class/leds/fsjoule-mark/brightness"

Words = tuple[Annotated[str, StringConstraints(pattern=r"^\S+$")], ...]
Cell = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]


def _root_name(name: str) -> str:
    choices = [row.name for row in FILESYSTEMS.values() if row.root is not None]
    if name in FILESYSTEMS and FILESYSTEMS[name].is_image_of_disk:
        raise ValueError(f"a root with {name} gets its options from its variants: --fs {name}:VARIANT")
    if name not in choices:
        raise ValueError(f"no root partition can be made with {name}; choose from: {', '.join(choices)}")
    return name


def _filesystem_name(name: str) -> str:
    if name not in FILESYSTEMS:
        raise ValueError(f"{name} is no filesystem; choose from: {', '.join(FILESYSTEMS)}")
    return name


def _built_name(name: str) -> str:
    choices = [module for row in FILESYSTEMS.values() if row.dkms for module in row.modules]
    if name not in choices:
        raise ValueError(f"the module {name} is not built; choose from: {', '.join(choices)}")
    return name


RootName = Annotated[Name, AfterValidator(_root_name)]


class _Table(BaseModel):
    model_config = FROZEN


class BoardKind(_Table):
    """Facts about a real board that `fsjoule board` needs besides its card.

    `prompt` is its boot loader's; `ums` is the command with which U-Boot offers the card over USB, if it can.
    `network` is the kernel module of its network interface, which goes onto the root; empty if built in or unknown.
    """

    title: str
    memory_mib: Annotated[int, Field(gt=0)]
    prompt: Annotated[str, StringConstraints(min_length=1)] = "=> "
    ums: Annotated[str, StringConstraints(pattern=r"^(ums \d+ .+)?$")] = ""
    network: Annotated[str, StringConstraints(pattern=r"^[\w-]*$")] = ""


class MarkGpio(_Table):
    """The pin of the mark line: the device tree's path of its GPIO controller, and the cells that name it there."""

    controller: Annotated[str, StringConstraints(pattern=r"^/\S+$")]
    cells: Annotated[tuple[Cell, ...], Field(min_length=1, max_length=4)]


class BootSettings(_Table):
    """Boot loader settings: the kernel, and what is handed to it.

    `image` is the build's name of the kernel file. `dtb` is the device tree, if the board has one; `device_tree` has
    changes to it: path or alias of a node -> property -> its new text or number, or False to delete the property.
    `memory_base` is the physical address of the board's memory, which the format of an unpacked zImage contains.
    `overlays` are sources of device tree overlays, below the recipes' folder.
    `mark_device` is the UART to the meter, or an LED of the kernel's, and `mark_gpio` the pin that becomes this LED.
    """

    image: Literal["zImage", "bzImage", "Image"] = "zImage"
    dtb: Name | None = None
    memory_base: Annotated[int | None, Field(ge=0, lt=2**32)] = None
    root_device: Annotated[str, StringConstraints(pattern=r"^/dev/\S+$")]
    mark_device: Annotated[str, StringConstraints(pattern=r"^(/dev/\S+|/sys/class/leds/[\w:.-]+/brightness)$")]
    mark_gpio: MarkGpio | None = None
    arguments: Words
    device_tree: dict[Annotated[str, StringConstraints(pattern=r"^\S+$")], dict[Name, str | Literal[False] | Cell]] = {}
    overlays: Words = ()

    @model_validator(mode="after")
    def _has_the_tree_that_it_changes(self) -> Self:
        if (self.device_tree or self.overlays) and self.dtb is None:
            raise ValueError("device_tree and overlays change a device tree, but dtb names none")
        return self

    @model_validator(mode="after")
    def _has_the_led_of_its_pin(self) -> Self:
        if self.mark_gpio is None:
            return self
        if self.dtb is None:
            raise ValueError("mark_gpio is a pin of the device tree, but dtb names none")
        if not MarkLine(self.mark_device).is_gpio:
            raise ValueError(f"mark_gpio is a pin, but mark_device is {self.mark_device}, not {MARK_LED}")
        return self


class Modules(_Table):
    """Kernel modules beside those of filesystems.

    In the initramfs (`card`), on the root (`root`, and `storage` for further devices), and those that Debian has only
    as source, with the kernels for which they are built if a run needs them (`dkms`).
    """

    card: tuple[Name, ...]
    root: tuple[Name, ...]
    storage: tuple[Name, ...] = ()
    dkms: dict[Annotated[Name, AfterValidator(_built_name)], Annotated[tuple[Name, ...], Field(min_length=1)]] = {}


PATH_ON_ROOT: Final = r"^(/[A-Za-z0-9][\w.+-]*)+$"
OnRoot = Annotated[str, StringConstraints(pattern=PATH_ON_ROOT)]


class UserlandSettings(_Table):
    """The root's files: Debian packages, or the `archive` of another distribution's root filesystem.

    `packages` are those beside the filesystems'; `more_packages` come on top, so that a recipe need not repeat those of
    its base.
    `remove` are paths (globs) to delete, but for those in `keep`; `applets` are links to busybox to add.
    `suites` has filesystems' packages that `suite` lacks, with the suites that they are taken from. `files` are the
    user's own, by their paths on the root: beside the recipe, below the recipes' folder or anywhere.
    """

    suite: Name
    components: Annotated[tuple[Name, ...], Field(min_length=1)] = ("main",)
    packages: tuple[Name, ...] = ()
    more_packages: tuple[Name, ...] = ()
    archive: Annotated[str, StringConstraints(pattern=r"^\S*$")] = ""
    remove: Words = ()
    keep: Words = ()
    applets: Words = ()
    suites: dict[Name, Name] = {}
    files: dict[OnRoot, Annotated[str, StringConstraints(pattern=r"^\S+$")]] = {}

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(path for path in self.remove if path not in self.keep)

    @model_validator(mode="after")
    def _keeps_what_would_go(self) -> Self:
        if unknown := [path for path in self.keep if path not in self.remove]:
            raise ValueError(f"keep: {', '.join(unknown)} is not in remove")
        return self


class KernelSource(_Table):
    """A Debian kernel: its metapackage, its suite, and the oldest QEMU that emulates a board for it."""

    suite: Name
    package: Annotated[str, StringConstraints(pattern=r"^linux-image-[a-z0-9-]+$")]
    check_valid_until: bool = True
    qemu_at_least: Version = "0.0"

    @property
    def flavour(self) -> str:
        """The last part of all package names of this kernel: `armmp`."""
        return self.package.removeprefix("linux-image-")


class EmulatorPackage(_Table):
    """The source of a QEMU for kernels that the installed one is too old for: a package for the host.

    `for_kernels_from` maps a kernel version to the oldest QEMU for it and later kernels, for kernels outside the
    recipe. `board` are QEMU's arguments for a board that fills root partitions, `card` its card's -drive arguments.
    """

    program: Name
    package: Name
    suite: Name
    for_kernels_from: dict[Version, Version] = {}
    board: Words = ()
    card: Annotated[str, StringConstraints(pattern=r"^\S*$")] = ""


class KernelBuild(_Table):
    """Configuration for `fsjoule kernel build`: a target of the makefile, and a fragment next to the recipe."""

    base: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+config$")]
    fragment: Name


class RootFilesystem(_Table):
    """A recipe's own options for mkfs and mount of a root partition, instead of its filesystem's."""

    make_options: Words | None = None
    mount_options: Annotated[str, StringConstraints(pattern=r"^\S*$")] = ""


Below = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*$")]


class Slots(_Table):
    """Two roots on a card, A and B: the card's root and its second one, each with the kernel that starts it.

    U-Boot's `script` chooses one of them and counts its starts. The files of the folder `root` go onto both roots. Both
    are below the recipes' folder. `environment` are the first and the last sector of U-Boot's variables.
    """

    script: Below
    root: Below
    environment: tuple[Sector, Sector]


class Recipe(_Table):
    """One kind of card image: its content, and its choices of kernels.

    It has all filesystems but those that it is `without`, and those whose modules are not built for it. `roots` are its
    own options of root partitions. `file` is its path in the checkout, for messages.
    """

    name: Name
    file: str = ""
    architecture: Name
    hostname: Name
    board: BoardKind | None = None
    card: CardLayout
    boot: BootSettings
    boot_loader: BootLoader = BootLoader()
    slots: Slots | None = None
    modules: Modules
    userland: UserlandSettings
    emulator: EmulatorPackage
    kernel_build: KernelBuild | None = None
    kernels: Annotated[dict[Name, KernelSource], Field(min_length=1)]
    without: tuple[Annotated[Name, AfterValidator(_filesystem_name)], ...] = ()
    roots: dict[RootName, RootFilesystem] = {}

    @model_validator(mode="after")
    def _has_a_root(self) -> Self:
        if not self.userland.packages and not self.userland.archive:
            raise ValueError("userland has neither packages nor an archive: one of them is needed")
        return self

    @model_validator(mode="after")
    def _has_the_driver_of_its_led(self) -> Self:
        if self.boot.mark_gpio is not None and LED_MODULE not in self.modules.card:
            raise ValueError(f"boot.mark_gpio needs the module {LED_MODULE} in modules.card")
        return self

    @model_validator(mode="after")
    def _builds_for_its_own_kernels(self) -> Self:
        for name, kernels in self.modules.dkms.items():
            if unknown := set(kernels) - self.kernels.keys():
                raise ValueError(f"modules.dkms.{name} names unknown kernels: {', '.join(sorted(unknown))}")
        return self

    @model_validator(mode="after")
    def _has_a_second_slot(self) -> Self:
        if self.slots and not self.card.second_root:
            raise ValueError("slots are two roots, and the card has one: second_root = true in [card]")
        return self

    @model_validator(mode="after")
    def _has_places_for_its_boot_loader(self) -> Self:
        partitions = len(self.boot_loader.partitions)
        if partitions and self.card.table != "gpt":
            raise ValueError('a boot loader has partitions of its own only in a GPT: table = "gpt" in [card]')
        if partitions and not self.boot.root_device.endswith(str(partitions + 2)):
            raise ValueError(
                f"boot.root_device = {self.boot.root_device} is not the root: with {partitions} partitions of the boot "
                f"loader before it, the root is partition {partitions + 2}"
            )
        if problem := overlap(self.card, self.boot_loader, {}):
            raise ValueError(problem)
        return self

    def kernel(self, choice: str) -> KernelSource:
        """The kernel of this name. Raises ConfigError with the choices."""
        if choice not in self.kernels:
            raise ConfigError.unknown("kernel", choice, self.kernels)
        return self.kernels[choice]

    @property
    def filesystems(self) -> tuple[Filesystem, ...]:
        """The filesystems that the board has the programs and modules of, in the order of their table."""
        return tuple(
            row
            for row in FILESYSTEMS.values()
            if row.name not in self.without
            and (not row.dkms or self.modules.dkms.keys() >= set(row.modules))
            and (not row.unreleased or self.userland.suites.keys() >= set(row.packages))
        )

    @property
    def root_filesystems(self) -> tuple[str, ...]:
        """Names of the filesystems that the root partition can have."""
        return tuple(row.name for row in self.filesystems if row.root is not None or row.is_image_of_disk)

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian packages of the root, each once: none if the root is an archive's."""
        own = self.userland
        if own.archive:
            return ()
        tools = (package for row in (*self.filesystems, *LAYERS.values()) for package in row.packages)
        return tuple(dict.fromkeys([*own.packages, *tools, *own.more_packages]))

    def path_of(self, name: str) -> Path:
        """A file that the recipe names: beside it, if it is a user's own, or one of fsjoule's, or anywhere."""
        beside = Path(self.file).parent / name
        return beside if Path(self.file).is_absolute() and beside.exists() else recipes_folder() / name

    def filesystem(self, choice: str) -> Filesystem:
        """The root filesystem of this name with the recipe's options. Raises ConfigError with the choices.

        A read-only one has variants, `squashfs:xz+verity`.
        """
        plain = content_of(choice).partition(":")[0]
        if plain in self.root_filesystems and FILESYSTEMS[plain].is_image_of_disk:
            return filesystem(choice)
        if choice not in self.root_filesystems:
            raise ConfigError.unknown("root filesystem", choice, self.root_filesystems)
        kind, own = FILESYSTEMS[choice], self.roots.get(choice, RootFilesystem())
        options = kind.as_root.options if own.make_options is None else own.make_options
        mount_options = tuple(filter(None, own.mount_options.split(",")))
        return replace(kind, root=replace(kind.as_root, options=options, mount_options=mount_options))


def recipes_folder() -> Path:
    return project_dir() / "images"


def load_recipe(folder: Path, name: str = DEFAULT_RECIPE) -> Recipe:
    """Read a recipe in `folder` or its `boards/`, or a file that ends with `.toml` and is named by its path.

    Raises ConfigError with the choices, or the file, line and error.
    """
    files = recipe_files(folder)
    own = Path(name).expanduser()
    if name not in files and own.suffix == ".toml" and own.is_file():
        text = config_text(own, "the recipe", hint="a recipe is a text in UTF-8")
        return parse_recipe(text, name=own.stem, file=own.resolve())
    if name not in files:
        raise ConfigError.unknown("image recipe", name, sorted(files))
    path = files[name]
    return parse_recipe(path.read_text(encoding="utf-8"), name=name, file=path)


def recipe_files(folder: Path) -> dict[str, Path]:
    """All recipes by name: those in `folder` and the catalogue of boards in its `boards/`, and those of packages.

    Raises ConfigError if a package's recipe has the name of another one.
    """
    own = {path.stem: path for path in [*folder.glob("*.toml"), *folder.glob(f"{BOARDS}/*.toml")]}
    return own if folder != recipes_folder() else {**own, **_packaged(frozenset(own))}


@cache
def _packaged(own: frozenset[str]) -> dict[str, Path]:
    owners = dict.fromkeys(own, "fsjoule")
    files: dict[str, Path] = {}
    for offer in offered("fsjoule_recipes", Path):
        for file in sorted(offer.row.glob("*.toml")):
            known = owners.setdefault(file.stem, offer.owner)
            if file.stem in own or file.stem in files:
                raise twice("image recipe", file.stem, known, offer.owner)
            files[file.stem] = file
    return files


def parse_recipe(text: str, *, name: str, file: Path) -> Recipe:
    """A recipe from its text; its base is another recipe, one in `base/`, or a file by its absolute path.

    Raises ConfigError with file and line.
    """
    # The recipe and its bases, own values first.
    layers = [_Layer(text, file, parse_toml(text, file))]
    while "base" in layers[-1].document:
        last = layers[-1]
        base = _base_file(last.document.pop("base"), last, [layer.file for layer in layers])
        base_text = base.read_text(encoding="utf-8")
        layers.append(_Layer(base_text, base, parse_toml(base_text, base)))
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _merged(merged, layer.document)
    root = recipes_folder().parent
    shown = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
    try:
        return Recipe.model_validate({**merged, "name": name, "file": shown})
    except ValidationError as error:
        path = path_of(error)
        wrong = next((layer for layer in layers if _holds(layer.document, path)), layers[0])
        hint = "docs/images.md explains every field of a recipe"
        raise wrong_value(error, wrong.text, wrong.file, hint=hint) from error


@dataclass(frozen=True, slots=True)
class _Layer:
    """One file of a recipe: its own values go before those of its base."""

    text: str
    file: Path
    document: dict[str, Any]


def _base_file(base: object, layer: _Layer, used: Sequence[Path]) -> Path:
    folder = layer.file.parent
    own = Path(str(base))
    if own.is_absolute() and own.suffix == ".toml" and own.is_file() and own not in used:
        return own
    if folder.name in (_BASES, BOARDS):
        folder = folder.parent
    if not (folder / _BASES).is_dir():
        folder = recipes_folder()  # a recipe outside the checkout
    files = {**recipe_files(folder), **{path.stem: path for path in folder.glob(f"{_BASES}/*.toml")}}
    choices = sorted(files.keys() - {file.stem for file in used})
    if base not in choices:
        raise ConfigError(
            f"there is no base recipe {base!r}",
            file=layer.file,
            line=line_of(layer.text, ["base"]),
            hint=f"choose from: {', '.join(choices)}",
        )
    return files[str(base)]


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = base.keys() & own.keys()
    tables = {key for key in both if isinstance(base[key], dict) and isinstance(own[key], dict)}
    return {**base, **own, **{key: _merged(base[key], own[key]) for key in tables}}


def _holds(document: Any, path: Sequence[str]) -> bool:  # noqa: ANN401 - TOML has many types
    """Whether the document has the path, or a list on the way to it."""
    for key in path:
        if not isinstance(document, dict):
            return True
        if key not in document:
            return False
        document = cast("dict[str, Any]", document)[key]
    return True
