"""`fsjoule results`: run folders in an object store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import Json, Remove, age, out, output_folder, print_json, progress, progress_bar
from fsjoule.errors import ConfigError, ResultError
from fsjoule.model.labels import counted

if TYPE_CHECKING:
    from fsjoule.store.objects.address import Address
    from fsjoule.store.objects.bucket import Bucket

app = typer.Typer(
    no_args_is_help=True,
    help="Copy run folders to and from an object store: s3://BUCKET/PREFIX (docs/object-store.md).",
)

_RESULTS: Final = Path("results")
_MIB: Final = 1 << 20
_SHOWN: Final = 20

_Store = Annotated[str, typer.Argument(metavar="s3://BUCKET/PREFIX", help="The folder of runs in an object store.")]


@app.command("push")
def push(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN|DIR]... s3://BUCKET/PREFIX",
            help="Runs, or folders that contain some (default: results), then where they go.",
        ),
    ],
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Send every run, whatever is there: it puts a damaged archive right.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Send run folders to an object store. What is there already is not sent again.

    A run is there as a whole or not at all. Repeat a push that was interrupted: it goes on with the next run. Runs that
    are being measured are left for the next time.

    Exit code: 2 if a run was left out, 7 if the object store cannot be reached, or refuses.

    Example: fsjoule results push results s3://lab/boards
    """
    from fsjoule.store.objects.documents import push_documents
    from fsjoule.store.objects.transfers import push_runs
    from fsjoule.store.run_folders import find_runs, named_folders

    bucket = _folder_of_runs(words[-1], doing="push")
    named = named_folders(words[:-1] or [_RESULTS])
    folders, faults = find_runs(named)
    with progress_bar("sent", in_bytes=True) as watch:
        pushed = push_runs(bucket, folders, again=again, watch=watch)
    pushed.documents, others = push_documents(bucket, named, folders)
    left_out = [*(f"{fault.path}: {fault.reason}" for fault in faults), *pushed.left_out, *others]
    if json_output:
        print_json({"store": str(bucket.address), **dataclasses.asdict(pushed), "left_out": left_out})
    else:
        _tell("not measured to its end yet, left for the next time", pushed.measuring)
        _tell("left out of its run", pushed.problems)
        _tell("left out", left_out)
        out.print(
            f"{counted(pushed.new, 'run')} new, {pushed.grown} grown, {pushed.known} already there; "
            f"{pushed.sent_bytes / _MIB:.1f} MiB sent, {pushed.bytes / _MIB:.1f} MiB unpacked{_and(pushed.documents)}",
            highlight=False,
            soft_wrap=True,
        )
    _refuse(left_out, "sent")


@app.command("pull")
def pull(
    store: Annotated[
        str, typer.Argument(metavar="s3://BUCKET/PREFIX[/RUN]", help="A run in an object store, or a folder of runs.")
    ],
    *,
    into: Annotated[
        Path, typer.Option("--into", metavar="DIR", callback=output_folder, help="Where the run folders go.")
    ] = _RESULTS,
    most: Annotated[int | None, typer.Option("--runs", min=1, help="At most this many runs, newest first.")] = None,
    json_output: Json = False,
) -> None:
    """Fetch runs from an object store. Runs that are there already are not fetched again.

    Every file is compared with its digest; a run folder appears when it is whole.

    Exit code: 2 if a run was left out, 7 if the object store cannot be reached, or refuses.

    Example: fsjoule results pull s3://lab/boards --into history --runs 100
    """
    from fsjoule.store.objects.address import parse_address
    from fsjoule.store.objects.archives import listed_runs
    from fsjoule.store.objects.bucket import open_bucket
    from fsjoule.store.objects.documents import pull_documents
    from fsjoule.store.objects.transfers import pull_runs

    address = parse_address(store)
    bucket = open_bucket(address)
    names = [address.run] if address.run else [run.name for run in listed_runs(bucket)]
    names = names if most is None else names[-most:]
    with progress_bar("fetched", in_bytes=True) as watch:
        pulled = pull_runs(bucket, names, into, watch=watch)
    if address.run is None:
        pulled.documents, others = pull_documents(bucket, into)
        pulled.left_out += others
    if json_output:
        print_json({"store": str(address), **dataclasses.asdict(pulled)})
    else:
        _tell("left out", pulled.left_out)
        out.print(
            f"{counted(pulled.new, 'run')} new, {pulled.grown} grown, {pulled.known} already there; "
            f"{pulled.bytes / _MIB:.1f} MiB fetched{_and(pulled.documents)}",
            highlight=False,
        )
    _refuse(pulled.left_out, "fetched")


@app.command("list")
def list_(store: _Store, json_output: Json = False) -> None:
    """List the runs in an object store, oldest first.

    Example: fsjoule results list s3://lab/boards
    """
    from fsjoule.store.objects.archives import listed_runs

    bucket = _folder_of_runs(store, doing="list")
    found = listed_runs(bucket)
    if json_output:
        print_json([{"run": run.name, "address": str(bucket.address.of(run.name))} for run in found])
        return
    for run in found:
        out.print(str(bucket.address.of(run.name)), soft_wrap=True, markup=False, highlight=False)


@app.command("prune")
def prune(
    store: _Store,
    *,
    keep: Annotated[str, typer.Option("--keep", metavar="AGE", help="Keep runs up to this age: 90d, 12w or 2y.")],
    remove: Remove = False,
    json_output: Json = False,
) -> None:
    """Remove old runs from an object store, and archives in whose place newer ones have come.

    Exit code: 7 if the object store cannot be reached, or refuses.

    Example: fsjoule results prune s3://lab/boards --keep 90d, then the same with --remove
    """
    from fsjoule.store.objects.transfers import prune as prune_store

    time_kept = age("--keep", keep)
    bucket = _folder_of_runs(store, doing="prune")
    pruned = prune_store(bucket, time_kept, remove=remove)
    if json_output:
        print_json({"store": str(bucket.address), "removed": remove, **dataclasses.asdict(pruned)})
        return
    for name in pruned.runs:
        out.print(str(bucket.address.of(name)), soft_wrap=True, markup=False, highlight=False)
    out.print(
        f"{'removed' if remove else 'to remove'}: {counted(len(pruned.runs), 'run')}, "
        f"{counted(pruned.superseded, 'superseded archive')}, {pruned.bytes / _MIB:.1f} MiB; "
        f"kept: {counted(pruned.kept_runs, 'run')}",
        highlight=False,
        soft_wrap=True,
    )
    if not remove and (pruned.runs or pruned.superseded):
        progress("nothing was removed; add --remove")


def _folder_of_runs(text: str, *, doing: str) -> Bucket:
    """The objects at the address of a folder of runs. Raises ConfigError."""
    from fsjoule.store.objects.address import parse_address
    from fsjoule.store.objects.bucket import open_bucket

    address: Address = parse_address(text)
    if address.run is not None:
        raise ConfigError(f"{address} is one run", hint=f"{doing} takes a folder of runs: s3://BUCKET/PREFIX")
    return open_bucket(address)


def _and(documents: int) -> str:
    return f", {counted(documents, 'document')} beside the runs" if documents else ""


def _tell(what: str, names: Sequence[str]) -> None:
    for name in names[:_SHOWN]:
        progress(f"{what}: {name}")
    if len(names) > _SHOWN:
        progress(f"and {len(names) - _SHOWN} more; --json lists all")


def _refuse(left_out: Sequence[str], done: str) -> None:
    """Raise ResultError, at the end, if runs were left out."""
    if left_out:
        raise ResultError(
            f"{counted(len(left_out), 'run or document', 'runs or documents')} not {done}: {left_out[0]}",
            hint="the others are whole; put these right, then repeat the command",
        )
