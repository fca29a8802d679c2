"""The programs of a user land by the hashes of their pages: a board that counts instructions names pages so."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.images.userland import userland
from fsjoule.kernels.recipe import load_recipe, recipes_folder

_PAGE_BYTES: Final = 4096
_ELF: Final = b"\x7fELF"
# FNV-1a over words of 64 bits; probe/guest_profile.c has the same.
_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3


def card_programs(recipe: str) -> dict[int, str]:
    """The programs of the cards of a recipe by the hashes of their pages. Raises as `userland` does."""
    return program_pages(userland(load_recipe(recipes_folder(), recipe)).tree)


def program_pages(tree: Path) -> dict[int, str]:
    """The programs and libraries of a user land, by their names, by the hashes of their pages.

    A page that several have is the first one's, by path.
    """
    pages: dict[int, str] = {}
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content.startswith(_ELF):
            for page in page_hashes(content).tolist():
                pages.setdefault(page, path.name)
    return pages


def page_hashes(content: bytes) -> npt.NDArray[np.uint64]:
    """The hash of each page of a file, the last one filled up with zeros, as in memory."""
    pages = np.frombuffer(content + bytes(-len(content) % _PAGE_BYTES), "<u8").reshape(-1, _PAGE_BYTES // 8)
    hashes = np.full(len(pages), _BASIS, np.uint64)
    for word in pages.T:
        hashes = (hashes ^ word) * np.uint64(_PRIME)
    hashes[hashes == 0] = 1
    return hashes
