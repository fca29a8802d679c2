"""The way from a choice of kernel and root filesystem to a card image, one cached stage after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fsjoule.images.cache import Progress, build_once, cache_key
from fsjoule.images.card import STAGE_VERSION, build_card_files, kernel_arguments, read_facts
from fsjoule.images.emulator import emulator_program
from fsjoule.images.kernel import kernel as kernel_stage
from fsjoule.images.partition import partition_key, root_partition
from fsjoule.images.recipe import DEFAULT_RECIPE, Recipe, load_recipe
from fsjoule.images.userland import userland as userland_stage
from fsjoule.model import ImageFacts
from fsjoule.paths import project_dir


@dataclass(frozen=True, slots=True)
class CardImage:
    """A card image; its block map is beside it, `<path>.bmap`."""

    path: Path
    facts: ImageFacts


def kernel_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the kernels that a card can have, in the recipe's order."""
    return tuple(_recipe(recipe).kernels)


def root_filesystem_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the filesystems that the root partition can have, in the recipe's order."""
    return tuple(_recipe(recipe).filesystems)


def emulator(kernel: str, *, progress: Progress, recipe: str = DEFAULT_RECIPE) -> Path:
    """The QEMU program for a board with that kernel; most kernels run on the installed one, some need a newer.

    Raises ConfigError for an unknown kernel, MissingToolError, and LabError, transient if it was the download.
    """
    return emulator_program(_recipe(recipe), kernel, progress=progress)


def build_card(kernel: str, root_filesystem: str, *, progress: Progress, recipe: str = DEFAULT_RECIPE) -> CardImage:
    """The card image with that kernel and root filesystem; what is in the cache is not built again.

    Raises ConfigError for a name that is not in the recipe or a mistake in it, MissingToolError, and LabError,
    transient if it was the download.
    """
    chosen = _recipe(recipe)
    chosen.kernel(kernel)
    chosen.filesystem(root_filesystem)
    overlay, init = _folder() / "overlay", _folder() / "initramfs" / "init"
    kernel_files = kernel_stage(chosen, kernel, progress=progress)
    files = userland_stage(chosen, progress=progress)
    name = f"{recipe}-{kernel}-{root_filesystem}"
    root_key = partition_key(chosen, root_filesystem, kernel_files, files, overlay)
    inputs = {
        "version": STAGE_VERSION,
        "partition": root_key,
        "layout": chosen.card.model_dump(),
        "arguments": kernel_arguments(chosen, root_filesystem),
        "modules": [*chosen.modules.card, *chosen.filesystem(root_filesystem).modules],
        "init": init.read_text(),
        "memory_base": chosen.boot.memory_base,
    }

    def build(folder: Path) -> None:
        started = time.monotonic()
        root_image = root_partition(
            chosen, root_filesystem, kernel_files, files, name=name, key=root_key, overlay=overlay, progress=progress
        )
        progress(f"card: assembling {chosen.card.size_mib} MiB for kernel {kernel} and {root_filesystem}")
        build_card_files(
            folder,
            chosen,
            kernel,
            root_filesystem,
            kernel=kernel_files,
            userland=files,
            root_image=root_image,
            init=init,
        )
        progress(f"card: kernel {kernel}, {root_filesystem}: done in {time.monotonic() - started:.0f} s")

    folder = build_once("card", name, cache_key(inputs), build, progress=progress)
    return CardImage(folder / "card.img", read_facts(folder))


def _folder() -> Path:
    return project_dir() / "images"


def _recipe(name: str) -> Recipe:
    return load_recipe(_folder(), name)
