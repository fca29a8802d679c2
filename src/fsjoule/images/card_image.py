"""From a kernel and a root filesystem to a card image, through cached stages."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host.cache.locks import locked
from fsjoule.host.cache.stages import (
    LOCK_TIMEOUT_S,
    UNFINISHED,
    build_once,
    cache_key,
    check_whole,
    images_cache,
    sweep,
)
from fsjoule.images import slots
from fsjoule.images.boot_files import kernel_arguments
from fsjoule.images.boot_loader import boot_loader, loader_key
from fsjoule.images.card import STAGE_VERSION, build_card_files, read_facts
from fsjoule.images.emulator import emulator_program, needed_qemu
from fsjoule.images.partition import partition_key, root_partition
from fsjoule.images.read_only import root_modules
from fsjoule.images.steady import steady_environment
from fsjoule.images.userland import own_files
from fsjoule.images.userland import userland as userland_stage
from fsjoule.kernels import sources
from fsjoule.kernels.recipe import Recipe, load_recipe, recipes_folder
from fsjoule.kernels.sources import TakenKernel
from fsjoule.model import DEFAULT_RECIPE, MIB, ImageFacts
from fsjoule.model.filesystem import file_name

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CardImage:
    """A card image; its block map is beside it, `<path>.bmap`."""

    path: Path
    facts: ImageFacts


def root_filesystem_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the filesystems that the root partition can have."""
    return _recipe(recipe).root_filesystems


def card_space(recipe: str = DEFAULT_RECIPE) -> tuple[int, int]:
    """Bytes of a card's scratch partition, and half the size of its root, which is less than its free space."""
    layout = _recipe(recipe).card
    return layout.scratch_mib * MIB, layout.root_mib * MIB // 2


def has_second_root(recipe: str = DEFAULT_RECIPE) -> bool:
    """Whether a recipe's card has a partition for root filesystems that are brought in place."""
    return _recipe(recipe).card.second_root


def card_bytes(recipe: str = DEFAULT_RECIPE) -> int:
    """The size of a recipe's card. Raises ConfigError for an unknown recipe."""
    return _recipe(recipe).card.size_mib * MIB


def emulator(*asked: str | TakenKernel, recipe: str = DEFAULT_RECIPE) -> Path:
    """One QEMU program for boards with any of these kernels: the installed one unless a kernel needs a newer one.

    Raises ConfigError for an unknown kernel, MissingToolError, HostError (transient if a download failed).
    """
    chosen = _recipe(recipe)

    def needed(kernel: str | TakenKernel) -> str:
        name = kernel if isinstance(kernel, str) else kernel.facts.asked
        if name in chosen.kernels:
            return chosen.kernels[name].qemu_at_least  # known without fetching the kernel
        taken = sources.take_kernel(chosen, kernel) if isinstance(kernel, str) else kernel
        return needed_qemu(chosen, taken.facts.release)

    return emulator_program(chosen, [needed(kernel) for kernel in asked])


def build_card(
    kernel: str | TakenKernel, root_filesystem: str, *, recipe: str = DEFAULT_RECIPE, root: Path | None = None
) -> CardImage:
    """The card image with this kernel and root filesystem, from the cache (the usual one, or below `root`) if possible.

    Raises ConfigError for a wrong name or recipe, MissingToolError, HostError (transient: a download failed).
    """
    chosen = _recipe(recipe)
    kind = chosen.filesystem(root_filesystem)
    needed = root_modules(kind)
    loader = boot_loader(chosen)  # it is checked before anything is built
    taken = sources.take_kernel(chosen, kernel) if isinstance(kernel, str) else kernel
    label, kernel_files = taken.facts.label, taken.files
    if lacking := sorted({*needed, *kind.needs} & set(kernel_files.lacks)):
        raise ConfigError(
            f"the kernel {label} cannot mount a {root_filesystem} root: it has no {', '.join(lacking)}",
            hint="switch it on in the kernel's configuration, or choose another root filesystem",
        )
    kind.check_kernel(label, kernel_files.release, (*kind.as_root.options, *kind.as_root.mount_options))
    overlay, init, fill = (
        recipes_folder() / "overlay",
        recipes_folder() / "initramfs" / "init",
        recipes_folder() / "initramfs" / "fill",
    )
    files = userland_stage(chosen)
    name = f"{chosen.name}-{taken.short_name}-{file_name(kind.name)}"
    slot = slots.slot_files(chosen, kernel_files, files, loader, root_filesystem, init=init)
    more = {**own_files(chosen), **slot}
    root_key = partition_key(chosen, root_filesystem, kernel_files, files, overlay=overlay, fill=fill, more=more)
    inputs: dict[str, object] = {
        "version": STAGE_VERSION,
        "partition": root_key,
        "layout": chosen.card.model_dump(exclude_defaults=True),
        "arguments": kernel_arguments(chosen, root_filesystem),
        "modules": [*chosen.modules.card, *needed],
        "init": init.read_text(),
        "memory_base": chosen.boot.memory_base,
        **loader_key(chosen, loader),
    }
    script = b""
    if chosen.slots:
        script = slots.boot_script(chosen, chosen.slots, more)
        inputs["slots"] = [slots.STAGE_VERSION, hashlib.sha256(script).hexdigest(), chosen.slots.environment]

    def build(folder: Path) -> None:
        started = time.monotonic()
        for part in (kernel_files.folder, files.tree.parent):
            check_whole(part)
        root_image = root_partition(
            chosen, root_filesystem, kernel_files, files,
            name=name, key=root_key, overlay=overlay, fill=fill, more=more, root=root)  # fmt: skip
        content: dict[str, bytes | Path] = {}
        if chosen.slots:
            second = slots.second_version(more)
            second_key = partition_key(
                chosen, root_filesystem, kernel_files, files, overlay=overlay, fill=fill, more=second)  # fmt: skip
            second_image = root_partition(
                chosen, root_filesystem, kernel_files, files,
                name=name, key=second_key, overlay=overlay, fill=fill, more=second, root=root)  # fmt: skip
            made = slots.updates(chosen, second_image, second_key)
            content = {"boot.scr": script, **{each: made / each for each in (slots.BUNDLE, slots.ARCHIVE)}}
        _log.info("card: assembling %s MiB for kernel %s and %s", chosen.card.size_mib, label, root_filesystem)
        build_card_files(
            folder,
            chosen,
            label,
            root_filesystem,
            kernel=kernel_files,
            userland=files,
            root_image=root_image,
            init=init,
            loader=loader,
            steady=steady_environment(),
            boot_content=content,
        )
        _log.info("card: kernel %s, %s: done in %.0f s", label, root_filesystem, time.monotonic() - started)

    folder = build_once("card", name, cache_key(inputs), build, root=root, read=True)
    # The same card may have been built for a kernel with another label.
    facts = replace(
        read_facts(folder),
        kernel_choice=label,
        root_filesystem=root_filesystem,
        make_options=kind.as_root.options,
        mount_options=kind.as_root.mount_options,
    )
    return CardImage(folder / "card.img", facts)


def check_card(kernel: str | TakenKernel, root_filesystem: str, *, recipe: str = DEFAULT_RECIPE) -> CardImage:
    """The card image, after a second build that was equal. Raises HostError if not, and like `build_card`."""
    first = build_card(kernel, root_filesystem, recipe=recipe)
    place = images_cache() / "card"
    with locked(place / ".check.lock", "a card to compare", LOCK_TIMEOUT_S), _to_compare(place) as folder:
        _log.info("making the card a second time")
        second = build_card(kernel, root_filesystem, recipe=recipe, root=Path(folder))
        if first.facts.card_sha256 != second.facts.card_sha256:
            at = _first_difference(first.path, second.path)
            raise HostError(
                f"two builds of one card differ from byte {at} on: {first.path}",
                hint="the mkfs programs may have changed since the first build: fsjoule image clean, then try again",
            )
    return first


@contextmanager
def _to_compare(place: Path) -> Generator[str]:
    """A folder that counts as an interrupted build if this process is killed."""
    sweep(place / "check")
    with tempfile.TemporaryDirectory(dir=place, prefix=f".check{UNFINISHED}") as folder:
        yield folder


def _first_difference(one: Path, other: Path) -> int:
    with one.open("rb") as first, other.open("rb") as second:
        place = 0
        while (block := first.read(MIB)) == second.read(MIB):
            place += len(block)
        first.seek(place)
        second.seek(place)
        pairs = zip(first.read(MIB), second.read(MIB), strict=False)
        return place + next((number for number, (a, b) in enumerate(pairs) if a != b), 0)


def _recipe(name: str) -> Recipe:
    return load_recipe(recipes_folder(), name)
