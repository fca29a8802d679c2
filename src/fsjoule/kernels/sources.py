"""Values of `--kernel`, and their kernels: by name, in a package file, in a build folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.host.cache.stages import Progress
from fsjoule.kernels.build_folder import BuildFolder, build_folder, folder_kernel
from fsjoule.kernels.dkms import modules_to_build
from fsjoule.kernels.kernel import Kernel
from fsjoule.kernels.packages import PackageFile, archive_kernel, package_file, package_kernel
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import KernelFacts, KernelOrigin

_KINDS = "or name a package file (linux-image-….deb) or a build folder"
_SHOWN = 40

# One of the recipe's names, a package file, or a build folder.
KernelChoice = str | PackageFile | BuildFolder


@dataclass(frozen=True, slots=True)
class TakenKernel:
    facts: KernelFacts
    files: Kernel

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


def take_kernel(recipe: Recipe, asked: str, modules: Iterable[str] = (), *, progress: Progress) -> TakenKernel:
    """The kernel, from the cache if possible, with modules for filesystems. Raises ConfigError, LabError."""
    choice = kernel_choice(recipe, asked)
    built = modules_to_build(recipe, asked, modules)
    describe = ""
    match choice:
        case str():
            origin = KernelOrigin.DEBIAN
            kernel = archive_kernel(recipe, choice, built, progress=progress)
        case PackageFile():
            origin = KernelOrigin.PACKAGE
            kernel = package_kernel(recipe, choice, progress=progress)
        case BuildFolder():
            origin, describe = KernelOrigin.FOLDER, choice.git_describe
            kernel = folder_kernel(recipe, choice, progress=progress)
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


def take_kernels(
    recipe: Recipe, asked: Sequence[str], modules: Collection[str] = (), *, progress: Progress
) -> tuple[TakenKernel, ...]:
    """Kernels with unique labels: equal labels get a number."""
    taken = [take_kernel(recipe, one, modules, progress=progress) for one in asked]
    labels = kernel_labels(recipe, asked)
    return tuple(
        replace(kernel, facts=replace(kernel.facts, label=label)) for kernel, label in zip(taken, labels, strict=True)
    )


def kernel_labels(recipe: Recipe, asked: Sequence[str]) -> tuple[str, ...]:
    """The labels that `take_kernels` gives, without fetching anything. Raises ConfigError."""
    return tuple(numbered([_label(kernel_choice(recipe, one)) for one in asked]))


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
