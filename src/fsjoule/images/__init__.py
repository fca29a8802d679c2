"""Card images: Debian kernels and user land from recipes (`images/*.toml`), built once and cached."""

from fsjoule.images.build import (
    CardImage,
    build_card,
    check_kernel,
    emulator,
    kernel_choices,
    root_filesystem_choices,
    take_kernels,
)
from fsjoule.images.cache import CacheEntry, cached, clean
from fsjoule.images.kernels import TakenKernel

__all__ = [
    "CacheEntry",
    "CardImage",
    "TakenKernel",
    "build_card",
    "cached",
    "check_kernel",
    "clean",
    "emulator",
    "kernel_choices",
    "root_filesystem_choices",
    "take_kernels",
]
