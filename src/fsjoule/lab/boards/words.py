"""The abilities of a boot loader, in words."""

from __future__ import annotations

from fsjoule.kernels.recipe import Recipe
from fsjoule.lab.boards.abilities import Abilities


def abilities_text(recipe: Recipe, abilities: Abilities | None) -> str:
    """Ways of flashing, how the kernel is found, and the prompt; `abilities` is None if nothing is known."""
    lines = ["ways to flash the card:", "  yes  SD mux (needs nothing of the boot loader)"]
    if abilities is None:
        lines.append("  ?    all others: this recipe names no boot loader whose configuration Debian has")
        return "\n".join(lines)
    for way in abilities.ways:
        remark = f" ({way.remark})" if way.remark else ""
        if way.lacks:
            lines.append(f"  no   {way.name}: without {', '.join(way.lacks)}{remark}")
        else:
            lines.append(f"  yes  {way.name}{remark}")
    lines.append(f"finds the kernel by: {', '.join(abilities.boots) or 'neither extlinux.conf nor boot.scr'}")
    if abilities.prompt is not None:
        known = recipe.board is None or recipe.board.prompt == abilities.prompt
        other = "" if known else f", but {recipe.file} says {recipe.board.prompt!r}" if recipe.board else ""
        delay = "" if abilities.delay_s is None else f", after {abilities.delay_s} s without a key it boots"
        lines.append(f"prompt: {abilities.prompt!r}{other}{delay}")
    return "\n".join(lines)
