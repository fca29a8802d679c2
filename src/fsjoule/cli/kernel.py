"""`fsjoule kernel`: kernels built from source."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fsjoule.cli.common import Json, Wide, out, print_json

app = typer.Typer(no_args_is_help=True, help="Build kernels from source, for --kernel.")


@app.command("build")
def kernel_build(
    tree: Annotated[Path, typer.Option(help="A repository with the kernel's source.")],
    rev: Annotated[str, typer.Option(help="Revision: a commit, a tag or a branch.")] = "HEAD",
    config: Annotated[
        list[str] | None, typer.Option(help="A file with lines CONFIG_NAME=y, or one such line; may be repeated.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at a time (default: one per CPU).")] = None,
) -> None:
    """Cross-build a kernel for the board, or find it in the cache, and print its folder.

    Example: fsjoule kernel build --tree ~/linux --rev v6.12 --config CONFIG_EXT4_DEBUG=y
    """
    from fsjoule.kernels.build import build_kernel

    folder = build_kernel(tree, rev, config or (), jobs=jobs)
    out.print(str(folder), soft_wrap=True)


@app.command("list")
def kernel_list(wide: Wide = False, json_output: Json = False) -> None:
    """List the kernels built so far."""
    from fsjoule.kernels.build import built_kernels

    built = built_kernels()
    if json_output:
        print_json([{**dataclasses.asdict(entry), **dataclasses.asdict(notes)} for entry, notes in built])
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    columns = (word("revision"), word("built"), Column("took", "s"), Column("size", "MiB"), word("path", optional=True))
    rows = [
        (
            *(notes.git_describe, entry.created_utc, f"{notes.seconds:.0f}", f"{entry.size_bytes / 2**20:.0f}"),
            str(entry.path),
        )
        for entry, notes in built
    ]
    print_table(out, listing(columns, rows), wide=wide)


@app.command("clean")
def kernel_clean() -> None:
    """Remove all built kernels and their build folders."""
    from fsjoule.kernels.build import clean_kernels

    freed_bytes = clean_kernels()
    out.print(f"freed {freed_bytes / 2**20:.0f} MiB")
