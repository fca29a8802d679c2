"""Which kernels a board of a recipe can have, and those kernels, ready for its cards."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fsjoule.host.cache.stages import Progress
from fsjoule.kernels import sources
from fsjoule.kernels.dkms import modules_to_build
from fsjoule.kernels.recipe import Recipe, load_recipe, recipes_folder
from fsjoule.kernels.sources import TakenKernel
from fsjoule.model import DEFAULT_RECIPE


def kernel_choices(recipe: str = DEFAULT_RECIPE) -> tuple[str, ...]:
    """Names of the kernels that a card can have, in the recipe's order; package files and build folders come on top."""
    return tuple(_recipe(recipe).kernels)


def check_kernel(kernel: str, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()) -> None:
    """Raises ConfigError if that is no kernel: an unknown name, no such file, a build folder that lacks something.

    Also if there cannot be one of the modules for it. What a kernel turns out to lack is in its facts.
    """
    sources.kernel_choice(_recipe(recipe), kernel)
    modules_to_build(_recipe(recipe), kernel, modules)


def take_kernels(
    asked: Sequence[str], *, progress: Progress, recipe: str = DEFAULT_RECIPE, modules: Collection[str] = ()
) -> tuple[TakenKernel, ...]:
    """Kernels by name, package file or build folder, ready for cards, each with a label of its own.

    Of the modules that filesystems need, those that the kernel does not come with are built. Raises ConfigError for
    what is no kernel for this board, and LabError, transient if it was the download.
    """
    return sources.take_kernels(_recipe(recipe), asked, modules, progress=progress)


def _recipe(name: str) -> Recipe:
    return load_recipe(recipes_folder(), name)
