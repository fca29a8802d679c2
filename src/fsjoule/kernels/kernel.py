"""Stage `kernel`: one kernel, reduced to what the recipe needs, from any source.

The entry holds the kernel's image under the recipe's name, `board.dtb` if the board has a device tree,
`modules/lib/modules/<release>/` (uncompressed, with depmod's indexes) and `kernel.json`.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.host.cache.stages import build_once, cache_key, entry_digest
from fsjoule.host.unpacking import unzipped, unzstd
from fsjoule.kernels.configuration import parse_config
from fsjoule.kernels.image import architecture_of, kernel_release
from fsjoule.kernels.modules import ModuleIndex, closure, module_name, parse_index
from fsjoule.kernels.recipe import MarkGpio, Recipe, recipes_folder
from fsjoule.layers import CRYPTO_ALIAS, modules_of_layers

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 3

_DEVICE_TREE: Final = "board.dtb"
_UNPACKED: Final = "Image"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_INDEX_FILES: Final = ("modules.builtin", "modules.builtin.modinfo", "modules.order")

_FDT_TIMEOUT_S: Final = 10.0
_LEDS_NODE: Final = "/fsjoule-leds"


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """A built entry. `content` is a digest of all its files; `package` is empty if it did not come in a package.

    `package_sha256` is by name of its source files, `packages` are Debian versions by name; `lacks`: missing modules,
    and symbols of variants that its configuration has not.
    """

    content: str
    folder: Path
    image: Path
    release: str
    package: str
    packages: dict[str, str]
    package_sha256: dict[str, str]
    lacks: tuple[str, ...] = ()

    @property
    def device_tree(self) -> Path | None:
        file = self.folder / _DEVICE_TREE
        return file if file.exists() else None

    @property
    def modules_root(self) -> Path:
        return self.folder / "modules"

    def index(self) -> ModuleIndex:
        return read_index(self.modules_root / "lib" / "modules" / self.release)

    def digest(self) -> str:
        """SHA-256 of its files on the card: image, device tree, modules (but not their indexes)."""
        tree = [] if self.device_tree is None else [self.device_tree]
        files = [self.image, *tree, *sorted(self.modules_root.rglob("*.ko"))]
        digest = hashlib.sha256()
        for file in files:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(self.folder)} {len(content)}\n".encode() + content)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Parts:
    """A kernel before its reduction. depmod may write its folder `modules`, lib/modules/<release>.

    `config` is its configuration, if it came with one.
    """

    image: Path
    dtb: Path | None
    modules: Path
    package: str = ""
    packages: dict[str, str] = field(default_factory=dict[str, str])
    sha256: dict[str, str] = field(default_factory=dict[str, str])
    config: Path | None = None


def kernel_entry(
    recipe: Recipe,
    name: str,
    source: Mapping[str, Any],
    collect: Callable[[Path], Parts],
    *,
    needs: Sequence[str],
    built: Sequence[str] = (),
) -> KernelFiles:
    """The entry of a kernel; `collect` is called with an empty work folder if there is none yet.

    `built` are additional modules that `collect` brings. `source` goes into the entry's key, beside the recipe. Raises
    ConfigError if the kernel lacks a module in `needs`, or if its parts do not match.
    """
    modules = sorted({*wanted_modules(recipe), *modules_of_layers(), *built})
    inputs = {
        "version": STAGE_VERSION,
        **source,
        "device_tree": [recipe.boot.dtb, recipe.boot.device_tree],
        "modules": modules,
        "symbols": variant_symbols(recipe),
    }
    if recipe.boot.overlays:
        inputs["overlays"] = overlay_sources(recipe)
    if recipe.boot.mark_gpio is not None:
        inputs["mark_led"] = [recipe.boot.mark_device, recipe.boot.mark_gpio.model_dump()]

    def build(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        stored = _take(collect(work), folder, recipe, modules, needs)
        shutil.rmtree(work)
        (folder / "kernel.json").write_text(json.dumps(stored, indent=2) + "\n")

    key = cache_key(inputs)
    folder = build_once("kernel", name, key, build)
    stored: dict[str, Any] = json.loads((folder / "kernel.json").read_text())
    image, lacks = folder / recipe.boot.image, tuple(stored.pop("lacks"))
    return KernelFiles(content=entry_digest(folder), folder=folder, image=image, lacks=lacks, **stored)


def wanted_modules(recipe: Recipe) -> list[str]:
    """Module names of a recipe: for card, root filesystems, network and loading on demand, without modules to build."""
    network = [] if recipe.board is None or not recipe.board.network else [recipe.board.network]
    own = {*recipe.modules.card, *recipe.modules.root, *recipe.modules.storage, *network}
    return sorted(own.union(*(row.modules for row in recipe.filesystems if not row.dkms)))


def variant_symbols(recipe: Recipe) -> list[str]:
    """The symbols that variants of the recipe's filesystems need."""
    return sorted({each for row in recipe.filesystems for variant in row.variants.values() for each in variant.kconfig})


def read_index(folder: Path) -> ModuleIndex:
    names = {"dep": "modules.dep", "softdep": "modules.softdep", "alias": "modules.alias", "builtin": "modules.builtin"}
    return parse_index(**{part: (folder / file).read_text() for part, file in names.items()})


def _take(parts: Parts, folder: Path, recipe: Recipe, wanted: Sequence[str], needs: Sequence[str]) -> dict[str, Any]:
    """Copy kernel, device tree and needed modules from the parts. Returns notes about them."""
    release = parts.modules.name
    if not (parts.modules / "modules.builtin").is_file():
        raise ConfigError(
            f"the modules of {release} are incomplete: there is no modules.builtin",
            hint="install them again: make modules_install INSTALL_MOD_PATH=FOLDER",
        )
    image = folder / recipe.boot.image
    image.write_bytes(_image(parts.image, recipe))
    _check_release(image, release)
    if parts.dtb is not None:
        change_device_tree(shutil.copyfile(parts.dtb, folder / _DEVICE_TREE), recipe)
    process.run(["depmod", "-b", parts.modules.parents[2], release], timeout_s=300)
    index = read_index(parts.modules)
    lacks = [name for name in wanted if not index.has(name)]
    if missing := [name for name in lacks if name in needs]:
        raise ConfigError(
            f"the kernel {release} has no {', '.join(missing)}, neither built in nor as a module",
            hint="enable them in its configuration, build it, and install its modules as well",
        )
    if parts.config is not None and parts.config.is_file():
        there = parse_config(parts.config.read_text(errors="replace"))
        unset = [each for each in variant_symbols(recipe) if there.get(f"CONFIG_{each}", "n") not in ("y", "m")]
    else:
        unset = []
    target = folder / "modules" / "lib" / "modules" / release
    target.mkdir(parents=True)
    for module in closure([name for name in wanted if name not in lacks], index):
        source = parts.modules / index.paths[module]
        into = (target / index.paths[module]).with_name(f"{module_name(source.name)}.ko")
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(_decompressed(source))
    for name in _INDEX_FILES:
        if (parts.modules / name).exists():
            shutil.copyfile(parts.modules / name, target / name)
    process.run(["depmod", "-b", folder / "modules", release], timeout_s=60)
    # What it may ask for by alias, it does without.
    lacks = [name for name in (*lacks, *unset) if not name.startswith(CRYPTO_ALIAS)]
    kept = KernelFiles("", folder, image, release, parts.package, parts.packages, parts.sha256, tuple(lacks))
    return {name: value for name, value in asdict(kept).items() if name not in ("content", "folder", "image")}


def _image(file: Path, recipe: Recipe) -> bytes:
    """The kernel image of a build. Raises ConfigError for another processor's, which would never say a word.

    `make bindeb-pkg` packs 64-bit ARM's image with gzip, and U-Boot's distro boot wants it unpacked.
    """
    content = file.read_bytes()
    if recipe.boot.image == _UNPACKED and content.startswith(_GZIP_MAGIC):
        try:
            content = unzipped(content)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise ConfigError(f"the kernel image {file} is damaged: {error}", hint="build it again") from error
    architecture = architecture_of(content)
    # 64-bit ARM's image always has a header.
    if architecture != recipe.architecture and (architecture is not None or recipe.boot.image == _UNPACKED):
        known = "of an unknown format" if architecture is None else f"for {architecture}"
        raise ConfigError(
            f"the kernel image {file} is {known}, but {recipe.file} for {recipe.architecture}",
            hint=f"build {recipe.boot.image} for the board's processor",
        )
    return content


def _check_release(image: Path, release: str) -> None:
    """A newly built image beside old modules would boot and find no module."""
    own = kernel_release(image.read_bytes())
    if own is not None and own != release:
        raise ConfigError(
            f"the kernel image is {own}, but its modules belong to {release}",
            hint="install the modules of the same build: make modules_install INSTALL_MOD_PATH=FOLDER",
        )


def _decompressed(module: Path) -> bytes:
    """A module's ELF file: uncompressed, it loads fastest on a slow CPU, and every modprobe can read it."""
    content = module.read_bytes()
    try:
        match module.suffix:
            case ".xz" | ".gz":
                return unzipped(content)
            case ".zst":
                return unzstd(content)
            case _:
                return content
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise ConfigError(f"the module {module.name} cannot be unpacked: {error}", hint="build it again") from error


def overlay_sources(recipe: Recipe) -> dict[str, str]:
    """The text of the recipe's overlays, by file. Raises ConfigError if one cannot be read."""
    try:
        return {name: (recipes_folder() / name).read_text(encoding="utf-8") for name in recipe.boot.overlays}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{recipe.file}: an overlay cannot be read: {error}", hint="boot.overlays are files below images/"
        ) from error


def change_device_tree(file: Path, recipe: Recipe) -> None:
    """Change a device tree in place. Raises ConfigError for a node that it does not have, or a wrong overlay."""
    for node, properties in recipe.boot.device_tree.items():
        try:
            present = process.run(["fdtget", "-p", file, node], timeout_s=_FDT_TIMEOUT_S).stdout.decode().split()
        except HostError as error:
            raise ConfigError(
                f"the kernel's device tree {recipe.boot.dtb} has no node {node!r}, which the recipe changes",
                hint=f"correct [boot.device_tree] in {recipe.file}, or use another device tree",
            ) from error
        for name, value in properties.items():
            if value is not False:
                kind = "s" if isinstance(value, str) else "u"
                process.run(["fdtput", "-t", kind, file, node, name, str(value)], timeout_s=_FDT_TIMEOUT_S)
            elif name in present:
                process.run(["fdtput", "-d", file, node, name], timeout_s=_FDT_TIMEOUT_S)
    for name, source in overlay_sources(recipe).items():
        _apply_overlay(file, name, source, recipe)
    if recipe.boot.mark_gpio is not None:
        _add_mark_led(file, recipe, recipe.boot.mark_gpio)


def _add_mark_led(file: Path, recipe: Recipe, pin: MarkGpio) -> None:
    """A node for the kernel's `leds-gpio`, which holds the pin: low at first."""
    try:
        result = process.run(["fdtget", "-t", "u", file, pin.controller, "phandle"], timeout_s=_FDT_TIMEOUT_S)
    except HostError as error:
        raise ConfigError(
            f"the kernel's device tree {recipe.boot.dtb} has no GPIO controller {pin.controller!r} that can be used",
            hint=f"correct boot.mark_gpio in {recipe.file}: the path of a node with gpio-controller",
        ) from error
    led = f"{_LEDS_NODE}/{Path(recipe.boot.mark_device).parent.name}"
    process.run(["fdtput", "-cp", file, led], timeout_s=_FDT_TIMEOUT_S)
    for node, name, kind, *values in (
        (_LEDS_NODE, "compatible", "s", "gpio-leds"),
        (led, "gpios", "u", result.stdout.decode().strip(), *map(str, pin.cells)),
        (led, "default-state", "s", "off"),
    ):
        process.run(["fdtput", "-t", kind, file, node, name, *values], timeout_s=_FDT_TIMEOUT_S)


def _apply_overlay(file: Path, name: str, source: str, recipe: Recipe) -> None:
    overlay = file.with_name(f"{Path(name).stem}.dtbo")
    try:
        result = process.run(
            ["dtc", "-q", "-I", "dts", "-O", "dtb", "-@"], input_bytes=source.encode(), timeout_s=_FDT_TIMEOUT_S
        )
        overlay.write_bytes(result.stdout)
        process.run(["fdtoverlay", "-i", file, "-o", file, overlay], timeout_s=_FDT_TIMEOUT_S)
    except HostError as error:
        raise ConfigError(
            f"the overlay images/{name} does not fit the device tree {recipe.boot.dtb}: {error.what}",
            hint=f"correct it, or boot.overlays in {recipe.file}",
        ) from error
    finally:
        overlay.unlink(missing_ok=True)
