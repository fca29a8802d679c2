"""`fsjoule image`: card images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fsjoule.cli.common import Json, Wide, out, print_json, progress
from fsjoule.errors import ConfigError
from fsjoule.model import DEFAULT_RECIPE

app = typer.Typer(no_args_is_help=True, help="Build card images; list and clean their cache.")


@app.command("build")
def image_build(
    kernel: Annotated[str, typer.Option(help="One of `fsjoule choices`, a package file, or a build folder.")] = "6.1",
    fs: Annotated[str, typer.Option("--fs", help="Filesystem of the root partition.")] = "ext4",
    recipe: Annotated[
        str | None, typer.Option(help=f"The card's recipe, a file in images/ (default: {DEFAULT_RECIPE}).")
    ] = None,
    lg_env: Annotated[
        Path | None, typer.Option("--lg-env", metavar="FILE", help="Take the recipe of this environment's board.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Build it twice and compare the two.")] = False,
) -> None:
    """Build a card image, or find it in the cache, and print its path.

    Example: fsjoule image build --kernel 6.12 --fs btrfs
    """
    from fsjoule import images

    if lg_env is not None:
        if recipe is not None:
            raise ConfigError("--recipe and --lg-env both name a recipe", hint="give one of them")
        from fsjoule.lab import read_environment

        recipe = read_environment(lg_env).profile.recipe
    make = images.check_card if check else images.build_card
    card = make(kernel, fs, recipe=recipe or DEFAULT_RECIPE)
    if check:
        progress(f"both have the SHA-256 {card.facts.card_sha256}")
    out.print(str(card.path), soft_wrap=True)


@app.command("list")
def image_list(wide: Wide = False, json_output: Json = False) -> None:
    """List the cache. Damaged entries are built again when they are needed."""
    from fsjoule.host.cache.stages import cached

    entries = cached()
    if json_output:
        print_json([dataclasses.asdict(entry) for entry in entries])
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    columns = (word("stage"), word("name"), Column("MiB"), word("path", optional=True))
    rows = [(entry.stage, entry.name, f"{entry.size_bytes / 2**20:.0f}", str(entry.path)) for entry in entries]
    print_table(out, listing(columns, rows), wide=wide)
    for entry in entries:
        if entry.damage:
            out.print(Text(f"damaged: {entry.stage} {entry.name}: {entry.damage}", style="red"))


@app.command("clean")
def image_clean(json_output: Json = False) -> None:
    """Remove everything from the image cache that no other process uses (exit code 4 if one does)."""
    from fsjoule.host.cache.stages import cached, clean

    entries = cached()
    freed_bytes = clean(entries)
    if json_output:
        print_json({"freed_bytes": freed_bytes, "removed": [str(entry.path) for entry in entries]})
        return
    out.print(f"freed {freed_bytes / 2**20:.0f} MiB")
