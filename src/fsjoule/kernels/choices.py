"""Choices of kernels for a recipe's board, and the kernels, ready for its cards."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fsjoule.host.cache.stages import Progress
from fsjoule.kernels import sources
from fsjoule.kernels.dkms import modules_to_build
from fsjoule.kernels.recipe import Recipe, load_recipe, recipes_folder
from fsjoule.kernels.sources import TakenKernel
from fsjoule.model import DEFAULT_RECIPE


def kernel_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the recipe's kernels in its order. Package files and build folders are possible, too."""
    return tuple(_recipe(recipe).kernels)


def check_kernel(kernel: str, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()) -> None:
    """Raise ConfigError for an unknown name, a missing file, an incomplete folder, or an impossible module."""
    sources.kernel_choice(_recipe(recipe), kernel)
    modules_to_build(_recipe(recipe), kernel, modules)


def kernel_labels(asked: Sequence[str], recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """The labels that these kernels will have once they are taken. Raises ConfigError."""
    return sources.kernel_labels(_recipe(recipe), asked)


def take_kernels(
    asked: Sequence[str], *, progress: Progress, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()
) -> tuple[TakenKernel, ...]:
    """Kernels by name, package file or build folder, ready for cards, each with its own label.

    Modules that filesystems need and the kernel lacks are built. Raises ConfigError, LabError.
    """
    return sources.take_kernels(_recipe(recipe), asked, modules, progress=progress)


def _recipe(name: str) -> Recipe:
    return load_recipe(recipes_folder(), name)
