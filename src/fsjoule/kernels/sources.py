"""Values of `--kernel`, and their kernels, ready for cards: Debian's by name, a package file, a build folder.

Functions that take a recipe by its name raise ConfigError if there is none.
"""

from __future__ import annotations

import difflib
import logging
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.host.apt import Package, PrivateApt, control_fields, debian_archive, dependencies
from fsjoule.host.cache.stages import file_sha256
from fsjoule.kernels.build_folder import BuildFolder, build_folder, folder_kernel
from fsjoule.kernels.dkms import BuiltModule, built_module, modules_to_build
from fsjoule.kernels.kernel import KernelFiles, Parts, kernel_entry, wanted_modules
from fsjoule.kernels.recipe import Recipe, load_recipe, recipes_folder
from fsjoule.model import DEFAULT_RECIPE, KernelFacts, KernelOrigin

_log: Final = logging.getLogger(__name__)

_IMAGE: Final = "linux-image-"
_TREES: Final = "linux-dtb-"


def archive_kernel(recipe: Recipe, choice: str, built: Sequence[str] = ()) -> KernelFiles:
    """One of the recipe's kernels, fetched from Debian's archive unless it is cached.

    `built` are modules of `[modules.dkms]` to add. Raises ConfigError for an unknown kernel or module, HostError
    (transient if the download failed).
    """
    source = recipe.kernel(choice)

    def collect(work: Path) -> Parts:
        archive = debian_archive(source.suite, check_valid_until=source.check_valid_until)
        apt = PrivateApt(work / "apt", archive=archive, architecture=recipe.architecture)
        _log.info("kernel %s: fetching the package lists of %s", choice, source.suite)
        apt.update()
        packages = _kernel_packages(apt, source.package, source.flavour)
        size_mib = sum(package.size_bytes for package in packages) / 2**20
        _log.info("kernel %s: downloading %s %s, %.0f MiB", choice, packages[-1].name, packages[-1].version, size_mib)
        files = apt.download(packages, work)
        _log.info("kernel %s: unpacking", choice)
        parts = _unpacked(files, work / "tree", recipe.boot.dtb)
        image = next(package for package in packages if package.name == f"{_IMAGE}{parts.modules.name}")
        parts = replace(
            parts,
            package=f"{image.name} {image.version}",
            packages={package.name: package.version for package in packages},
            sha256={file.name: package.sha256 for file, package in zip(files, packages, strict=True)},
        )
        for name in built:
            module = built_module(recipe, name, source, release=parts.modules.name, version=image.version)
            parts = _with_module(parts, module)
        return parts

    key = {"source": source.model_dump(include={"suite", "package"}), "architecture": recipe.architecture}
    name = f"{recipe.name}-{choice}"
    # Debian's kernels differ in their filesystems. What a run measures is looked at before its card is made.
    rows = {module for row in recipe.filesystems for module in row.modules}
    needs = [*(name for name in wanted_modules(recipe) if name not in rows), *built]
    return kernel_entry(recipe, name, key, collect, needs=needs, built=built)


def _with_module(parts: Parts, module: BuiltModule) -> Parts:
    place = parts.modules / "updates" / "dkms"
    place.mkdir(parents=True, exist_ok=True)
    for file in module.modules:
        shutil.copy(file, place)
    return replace(
        parts,
        packages={**parts.packages, module.package: module.version},
        sha256={**parts.sha256, module.file: module.sha256},
    )


def _kernel_packages(apt: PrivateApt, metapackage: str, flavour: str) -> list[Package]:
    """The metapackage and all packages of its kernel, in any division; largest last."""
    packages: dict[str, Package] = {}
    names = [metapackage]
    while names:
        descriptions = apt.show(names)
        packages.update((package.name, package) for package in descriptions)
        below = {name for package in descriptions for name in package.depends}
        names = sorted(n for n in below - packages.keys() if n.startswith("linux-") and n.endswith(f"-{flavour}"))
    return sorted(packages.values(), key=lambda package: package.size_bytes)


# ----------------------------------------------------------------------------------------------------- package files


@dataclass(frozen=True, slots=True)
class PackageFile:
    path: Path
    name: str
    version: str
    architecture: str
    depends: tuple[str, ...]

    @property
    def release(self) -> str:
        """The kernel's release, for a package with a kernel image."""
        return self.name.removeprefix(_IMAGE)


def package_file(path: Path, architecture: str) -> PackageFile:
    """Examine a package file. Raises ConfigError if it has no kernel for the architecture."""
    package = _read_package(path)
    if not package.name.startswith(_IMAGE):
        raise ConfigError(
            f"{path} is the package {package.name}, which is not a kernel",
            hint="a kernel's package is named linux-image-RELEASE; `make bindeb-pkg` makes one",
        )
    if package.architecture != architecture:
        raise ConfigError(
            f"{path} is for {package.architecture}; the board needs {architecture}", hint=f"build it for {architecture}"
        )
    return package


def package_kernel(recipe: Recipe, package: PackageFile) -> KernelFiles:
    """The kernel in a package file, with dependencies from its folder. Raises ConfigError if it has none."""
    files = _with_neighbours(package)
    sha256 = {file.path.name: file_sha256(file.path) for file in files}

    def collect(work: Path) -> Parts:
        _log.info("kernel %s: unpacking %s", package.release, ", ".join(sha256))
        try:
            parts = _unpacked([file.path for file in files], work / "tree", recipe.boot.dtb)
        except HostError as error:
            there = {file.name for file in files}
            kernels = {name for file in files for name in file.depends if package.release in name}
            absent = ", ".join(sorted(kernels - there))
            needed = " and ".join(["modules", *([recipe.boot.dtb] if recipe.boot.dtb else [])])
            where = f"put {absent} beside it" if absent else f"build it again with {needed}"
            raise ConfigError(f"{package.path}: {error.what}", hint=where) from error
        return replace(
            parts,
            package=f"{package.name} {package.version}",
            packages={file.name: file.version for file in files},
            sha256=sha256,
        )

    key = {"package_files": sorted(sha256.values())}
    name = f"{recipe.name}-{package.release}"
    return kernel_entry(recipe, name, key, collect, needs=recipe.modules.card)


def _read_package(path: Path) -> PackageFile:
    try:
        shown = process.run(["dpkg-deb", "--field", path], timeout_s=30).stdout.decode(errors="replace")
        fields = control_fields(shown)
        return PackageFile(path, fields["Package"], fields["Version"], fields["Architecture"], dependencies(fields))
    except (HostError, KeyError) as error:
        raise ConfigError(f"{path} is not a whole Debian package: {error}", hint="copy or build it again") from error


def _with_neighbours(package: PackageFile) -> list[PackageFile]:
    """The package, its dependencies of the same folder and version, and its device trees: newer kernels are split."""
    nearby = {
        file.name: file
        for path in sorted(package.path.parent.glob("linux-*.deb"))
        if path != package.path and (file := _read_package(path)).version == package.version
    }
    packages = [package]
    for file in packages:  # the loop appends to it
        packages += [nearby.pop(name) for name in file.depends if name in nearby]
    # Armbian's image does not depend on its device trees: linux-image-current-sunxi, linux-dtb-current-sunxi.
    trees = (file for name, file in nearby.items() if name.startswith(_TREES))
    return packages + [file for file in trees if package.name.endswith(f"-{file.name.removeprefix(_TREES)}")]


def _unpacked(files: Sequence[Path], tree: Path, dtb: str | None) -> Parts:
    """A kernel's parts from packages, which are unpacked into `tree`. Raises HostError with a missing part."""
    for file in files:
        process.run(["dpkg-deb", "--extract", file, tree], timeout_s=300)
    # Newer packages keep everything below /usr/lib/modules/<release>.
    installed = tree / "lib" / "modules"
    if not installed.exists():
        installed.parent.mkdir(exist_ok=True)
        installed.symlink_to("../usr/lib/modules")
    listed = _one_of("modules", installed.glob("*/modules.builtin"), f"lib/modules/RELEASE in {_names(files)}")
    modules = listed.parent
    release = modules.name
    return Parts(
        image=_one_of("kernel image", [tree / f"boot/vmlinuz-{release}", modules / "vmlinuz"], _names(files)),
        dtb=_device_tree(tree, dtb, files, release) if dtb else None,
        modules=modules,
        config=next((each for each in (tree / f"boot/config-{release}", modules / "config") if each.is_file()), None),
    )


def _device_tree(tree: Path, dtb: str, files: Sequence[Path], release: str) -> Path:
    """The board's device tree, of this release if there are several.

    Raises ConfigError if only other boards' are there, HostError if there is none at all.
    """
    there: dict[str, Path] = {}
    # Debian has them in usr/lib/linux-image-RELEASE, Ubuntu in lib/firmware/RELEASE/device-tree, others in boot.
    trees = sorted(tree.rglob("*.dtb"))
    for path in sorted(trees, key=lambda path: not any(part.endswith(release) for part in path.parts)):
        if path.is_file():
            there.setdefault(path.name, path)
    if dtb not in there and there:
        near = difflib.get_close_matches(dtb, there, n=3, cutoff=0.6)
        raise ConfigError(
            f"no device tree {dtb} among the {len(there)} in {_names(files)}",
            hint=f"did you mean {' or '.join(near)}? Correct boot.dtb in the recipe"
            if near
            else "take a kernel that supports the board, or correct boot.dtb in the recipe",
        )
    return _one_of("device tree", filter(None, [there.get(dtb)]), f"{dtb} anywhere in {_names(files)}")


def _one_of(what: str, candidates: Iterable[Path], where: str) -> Path:
    for path in candidates:
        if path.exists():
            return path
    raise HostError(f"no {what}: {where}", hint="the packaging may have changed: see docs/images.md")


def _names(files: Sequence[Path]) -> str:
    return ", ".join(file.name for file in files)


_KINDS = "or name a package file (linux-image-….deb) or a build folder"
_SHOWN = 40

# One of the recipe's names, a package file, or a build folder.
KernelChoice = str | PackageFile | BuildFolder


@dataclass(frozen=True, slots=True)
class TakenKernel:
    facts: KernelFacts
    files: KernelFiles

    @property
    def short_name(self) -> str:
        """For names of cache entries, which have no path and no blank."""
        return self.facts.asked if self.facts.origin is KernelOrigin.DEBIAN else self.facts.release


def kernel_choice(recipe: Recipe, asked: str) -> KernelChoice:
    """The user's choice of a kernel; names come first. Raises ConfigError if it is missing or incomplete."""
    if asked in recipe.kernels:
        return asked
    try:
        path = Path(asked).expanduser()
        found = path.exists()
    except (OSError, RuntimeError) as error:  # a name too long for a file, or an unknown user's home
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"--kernel {asked[:_SHOWN]}…: {why}", hint=_choices(recipe)) from error
    if path.is_dir():
        return build_folder(path.resolve(), recipe.boot)
    if path.suffix == ".deb" and path.is_file():
        return package_file(path.resolve(), recipe.architecture)
    if found:
        raise ConfigError(
            f"{asked} is neither a package file (.deb) nor a build folder",
            hint="an image alone is not enough: give the folder that also has its device tree and modules",
        )
    if "/" in asked or path.suffix == ".deb":
        raise ConfigError(f"there is no kernel at {asked}", hint="name an existing package file or build folder")
    raise ConfigError(f"unknown kernel {asked!r}", hint=_choices(recipe))


def _choices(recipe: Recipe) -> str:
    return f"choose from: {', '.join(sorted(recipe.kernels))}; {_KINDS}"


def take_kernel(recipe: Recipe, asked: str, modules: Iterable[str] = ()) -> TakenKernel:
    """The kernel, from the cache if possible, with modules for filesystems. Raises ConfigError, HostError."""
    choice = kernel_choice(recipe, asked)
    built = modules_to_build(recipe, asked, modules)
    describe = ""
    match choice:
        case str():
            origin = KernelOrigin.DEBIAN
            kernel = archive_kernel(recipe, choice, built)
        case PackageFile():
            origin = KernelOrigin.PACKAGE
            kernel = package_kernel(recipe, choice)
        case BuildFolder():
            origin, describe = KernelOrigin.FOLDER, choice.git_describe
            kernel = folder_kernel(recipe, choice)
    facts = KernelFacts(
        label=_label(choice),
        asked=asked,
        origin=origin,
        release=kernel.release,
        digest=kernel.digest(),
        package=kernel.package,
        checksums=kernel.package_sha256,
        git_describe=describe,
        lacks=kernel.lacks,
    )
    return TakenKernel(facts, kernel)


def kernel_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the recipe's kernels in its order. Package files and build folders are possible, too."""
    return tuple(load_recipe(recipes_folder(), recipe).kernels)


def check_kernel(kernel: str, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()) -> None:
    """Raise ConfigError for an unknown name, a missing file, an incomplete folder, or an impossible module."""
    chosen = load_recipe(recipes_folder(), recipe)
    kernel_choice(chosen, kernel)
    modules_to_build(chosen, kernel, modules)


def take_kernels(
    asked: Sequence[str], *, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()
) -> tuple[TakenKernel, ...]:
    """Kernels, each with its own label: equal labels get a number. Modules of filesystems that they lack are built.

    Raises ConfigError, HostError.
    """
    chosen = load_recipe(recipes_folder(), recipe)
    taken = [take_kernel(chosen, one, modules) for one in asked]
    labels = kernel_labels(asked, recipe)
    return tuple(
        replace(kernel, facts=replace(kernel.facts, label=label)) for kernel, label in zip(taken, labels, strict=True)
    )


def kernel_labels(asked: Sequence[str], recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """The labels that `take_kernels` gives, without fetching anything. Raises ConfigError."""
    chosen = load_recipe(recipes_folder(), recipe)
    return tuple(numbered([_label(kernel_choice(chosen, one)) for one in asked]))


def _label(choice: KernelChoice) -> str:
    match choice:
        case PackageFile():
            return choice.release
        case BuildFolder():
            return choice.label
        case _:
            return choice


def numbered(labels: Sequence[str]) -> list[str]:
    """`build, 6.1, build` -> `build#1, 6.1, build#2`."""
    times, seen = Counter(labels), Counter[str]()
    found: list[str] = []
    for label in labels:
        seen[label] += 1
        found.append(f"{label}#{seen[label]}" if times[label] > 1 else label)
    return found
