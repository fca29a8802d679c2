"""`fsjoule image`: card images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fsjoule.cli.common import Json, Wide, out, output_file, print_json, progress
from fsjoule.errors import ConfigError
from fsjoule.model import DEFAULT_RECIPE

app = typer.Typer(
    no_args_is_help=True, help="Build card images; list and clean their cache; carry them to other computers."
)


RootFilesystem = Annotated[str, typer.Option("--fs", help="Filesystem of the root partition.")]
CardRecipe = Annotated[
    str | None, typer.Option(help=f"The card's recipe, a file in images/ (default: {DEFAULT_RECIPE}).")
]
RecipeOf = Annotated[
    Path | None, typer.Option("--lg-env", metavar="FILE", help="Take the recipe of this environment's board.")
]


def _recipe(recipe: str | None, lg_env: Path | None) -> str:
    if lg_env is not None:
        if recipe is not None:
            raise ConfigError("--recipe and --lg-env both name a recipe", hint="give one of them")
        from fsjoule.lab import read_environment

        recipe = read_environment(lg_env).profile.recipe
    return recipe or DEFAULT_RECIPE


@app.command("build")
def image_build(
    kernel: Annotated[str, typer.Option(help="One of `fsjoule choices`, a package file, or a build folder.")] = "6.1",
    fs: RootFilesystem = "ext4",
    recipe: CardRecipe = None,
    lg_env: RecipeOf = None,
    check: Annotated[bool, typer.Option("--check", help="Build it twice and compare the two.")] = False,
) -> None:
    """Build a card image, or find it in the cache, and print its path.

    Example: fsjoule image build --kernel 6.12 --fs btrfs
    """
    from fsjoule import images

    make = images.check_card if check else images.build_card
    card = make(kernel, fs, recipe=_recipe(recipe, lg_env))
    if check:
        progress(f"both have the SHA-256 {card.facts.card_sha256}")
    out.print(str(card.path), soft_wrap=True)


@app.command("export")
def image_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", callback=output_file, help="Where it goes: card.tar.zst.")],
    kernel: Annotated[str, typer.Option(help="A kernel's name, one of `fsjoule choices`.")] = "6.1",
    fs: RootFilesystem = "ext4",
    recipe: CardRecipe = None,
    lg_env: RecipeOf = None,
) -> None:
    """Write a card image into one file, with its kernel and checksums, for a computer that cannot build it.

    Example: fsjoule image export card.tar.zst --kernel 6.1 --fs ext4
    """
    from fsjoule import images

    head = images.export_card(kernel, fs, file, recipe=_recipe(recipe, lg_env))
    size_mib = file.stat().st_size / 2**20
    progress(f"{file}: {size_mib:.0f} MiB, {', '.join(head.entries)}")


@app.command("import")
def image_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `fsjoule image export` wrote.")],
) -> None:
    """Put a card image of `fsjoule image export` into the cache, and print its path. Nothing there is replaced.

    Take files only from people whose programs you would run. Example: fsjoule image import card.tar.zst
    """
    from fsjoule import images

    out.print(str(images.import_card(file).path), soft_wrap=True)


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
