"""Stage `kernel`: Debian's packages of one kernel, cut down to what the recipe needs.

The entry holds `zImage`, `board.dtb`, `modules/lib/modules/<release>/` (uncompressed, with depmod's indexes) and
`kernel.json`.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from fsjoule import process
from fsjoule.errors import LabError
from fsjoule.images.apt import Package, PrivateApt, debian_mirror, source_line
from fsjoule.images.cache import Progress, build_once, cache_key
from fsjoule.images.modules import ModuleIndex, closure, module_name, parse_index
from fsjoule.images.recipe import Recipe

# Raise it when this file changes what is in an entry.
STAGE_VERSION: Final = 2

_INDEX_FILES: Final = ("modules.builtin", "modules.builtin.modinfo", "modules.order")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built entry. `package_sha256` is by file name, `packages` Debian versions by name."""

    key: str
    folder: Path
    release: str
    package: str
    packages: dict[str, str]
    package_sha256: dict[str, str]

    @property
    def modules_root(self) -> Path:
        """A folder with lib/modules/<release> in it."""
        return self.folder / "modules"

    def index(self) -> ModuleIndex:
        return read_index(self.modules_root / "lib" / "modules" / self.release)


def kernel(recipe: Recipe, choice: str, *, progress: Progress) -> Kernel:
    """The kernel's files, fetched if they are not in the cache.

    Raises ConfigError for an unknown kernel or module, LabError, transient, if the download failed.
    """
    source = recipe.kernel(choice)
    wanted = wanted_modules(recipe)
    inputs = {
        "version": STAGE_VERSION,
        "source": source.model_dump(include={"suite", "package"}),
        "architecture": recipe.architecture,
        "device_tree": [recipe.boot.dtb, recipe.boot.device_tree],
        "modules": wanted,
    }
    key = cache_key(inputs)
    name = f"{recipe.name}-{choice}"
    folder = build_once("kernel", name, key, lambda into: _build(into, recipe, choice, progress), progress=progress)
    stored = json.loads((folder / "kernel.json").read_text())
    return Kernel(key=key, folder=folder, **stored)


def wanted_modules(recipe: Recipe) -> list[str]:
    """All module names of a recipe: of the card, of the root filesystems, and those loaded on demand."""
    filesystems = [name for filesystem in recipe.filesystems.values() for name in filesystem.modules]
    return sorted({*recipe.modules.card, *recipe.modules.root, *filesystems})


def read_index(folder: Path) -> ModuleIndex:
    """The indexes that depmod wrote below `lib/modules/<release>`."""
    names = {"dep": "modules.dep", "softdep": "modules.softdep", "alias": "modules.alias", "builtin": "modules.builtin"}
    return parse_index(**{part: (folder / file).read_text() for part, file in names.items()})


def _build(folder: Path, recipe: Recipe, choice: str, progress: Progress) -> None:
    source = recipe.kernel(choice)
    work = folder / "work"
    line = source_line(debian_mirror(), source.suite, check_valid_until=source.check_valid_until)
    apt = PrivateApt(work / "apt", source=line, architecture=recipe.architecture)
    progress(f"kernel {choice}: fetching the package lists of {source.suite}")
    apt.update(progress)
    packages = _kernel_packages(apt, source.package, source.flavour)
    size_mib = sum(package.size_bytes for package in packages) / 2**20
    progress(f"kernel {choice}: downloading {packages[-1].name} {packages[-1].version}, {size_mib:.0f} MiB")
    files = apt.download(packages, work, progress)

    progress(f"kernel {choice}: unpacking")
    tree = work / "tree"
    for file in files:
        process.run(["dpkg-deb", "--extract", file, tree], timeout_s=300)
    release = _take(tree, folder, recipe)
    shutil.rmtree(work)

    image = next(package for package in packages if package.name == f"linux-image-{release}")
    facts = Kernel(
        key="",
        folder=folder,
        release=release,
        package=f"{image.name} {image.version}",
        packages={package.name: package.version for package in packages},
        package_sha256={file.name: package.sha256 for file, package in zip(files, packages, strict=True)},
    )
    stored = {name: value for name, value in asdict(facts).items() if name not in ("key", "folder")}
    (folder / "kernel.json").write_text(json.dumps(stored, indent=2) + "\n")


def _kernel_packages(apt: PrivateApt, metapackage: str, flavour: str) -> list[Package]:
    """The metapackage and the packages of the same kernel below it, however the release splits them; largest last."""
    found: dict[str, Package] = {}
    names = [metapackage]
    while names:
        shown = apt.show(names)
        found.update((package.name, package) for package in shown)
        below = {name for package in shown for name in package.depends}
        names = sorted(n for n in below - found.keys() if n.startswith("linux-") and n.endswith(f"-{flavour}"))
    return sorted(found.values(), key=lambda package: package.size_bytes)


def _take(tree: Path, folder: Path, recipe: Recipe) -> str:
    """Take kernel, device tree and needed modules out of the unpacked packages; returns the kernel's release."""
    modules = next((path for top in ("lib", "usr/lib") for path in (tree / top).glob("modules/*")), None)
    if modules is None:
        raise LabError("the kernel packages hold no modules", hint="has the packaging changed? see docs/images.md")
    release = modules.name
    # Newer packages keep everything below /usr/lib/modules/<release>.
    if not (tree / "lib").exists():
        (tree / "lib").symlink_to("usr/lib")
    shutil.copyfile(_one_of([tree / f"boot/vmlinuz-{release}", modules / "vmlinuz"]), folder / "zImage")
    shutil.copyfile(_one_of((tree / "usr" / "lib").rglob(recipe.boot.dtb)), folder / "board.dtb")
    _change_device_tree(folder / "board.dtb", recipe)
    process.run(["depmod", "-b", tree, release], timeout_s=300)
    index = read_index(modules)
    target = folder / "modules" / "lib" / "modules" / release
    for module in closure(wanted_modules(recipe), index):
        source = modules / index.paths[module]
        into = (target / index.paths[module]).with_name(f"{module_name(source.name)}.ko")
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(_decompressed(source))
    for name in _INDEX_FILES:
        shutil.copyfile(modules / name, target / name)
    process.run(["depmod", "-b", folder / "modules", release], timeout_s=60)
    return release


def _change_device_tree(file: Path, recipe: Recipe) -> None:
    for node, properties in recipe.boot.device_tree.items():
        present = process.run(["fdtget", "-p", file, node], timeout_s=10).stdout.decode().split()
        for name, text in properties.items():
            if text is not False:
                process.run(["fdtput", "-t", "s", file, node, name, text], timeout_s=10)
            elif name in present:
                process.run(["fdtput", "-d", file, node, name], timeout_s=10)


def _one_of(candidates: Iterable[Path]) -> Path:
    tried: list[str] = []
    for path in candidates:
        if path.is_file():
            return path
        tried.append(str(path))
    raise LabError(f"the kernel packages hold none of: {', '.join(tried) or 'the device tree of the recipe'}")


def _decompressed(module: Path) -> bytes:
    """A module's ELF file; uncompressed ones load fastest on a slow CPU, and every modprobe can read them."""
    match module.suffix:
        case ".xz":
            return lzma.decompress(module.read_bytes())
        case ".zst":
            return process.run(["zstd", "--decompress", "--stdout", module], timeout_s=60).stdout
        case _:
            return module.read_bytes()
