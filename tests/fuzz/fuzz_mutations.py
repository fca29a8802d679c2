"""Ways to damage a run folder, or to make it hostile. All chance comes from the generator that is given."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_documents import (
    TEXTS,
    amounts,
    consistently,
    file_of,
    files_of,
    is_ours,
    names_in_run,
    other_than,
    places_in,
    shape,
    values,
)

# More than any reader takes, and none of it on the disk.
_HOLES_BYTES: Final = 10 << 30

Mutation = Callable[[random.Random, Path, Path], str]


def mutate(rng: random.Random, run: Path, outside: Path) -> list[str]:
    """Damage the run folder in one to four ways; returns what was done."""
    done: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        mutation = rng.choices([one for one, _ in _MUTATIONS], [weight for _, weight in _MUTATIONS])[0]
        try:
            done.append(mutation(rng, run, outside))
        except (
            OSError,
            ValueError,
            IndexError,
            KeyError,
            TypeError,
            RecursionError,
            StopIteration,
            pa.ArrowException,
        ) as error:
            # What an earlier mutation did may leave nothing for this one to do.
            done.append(f"{mutation.__name__}: {type(error).__name__}")
    return done


# ---------------------------------------------------------------------------------------------------------------- bytes


def _bytes(rng: random.Random, run: Path, _outside: Path) -> str:
    file = file_of(rng, run)
    content = bytearray(file.read_bytes())
    what = rng.choice(("flip", "flip", "cut", "empty", "insert", "bom", "utf-16", "nul", "double", "deep", "text"))
    if what == "flip":
        for _ in range(rng.choice((1, 2, 8, 64))):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif what == "cut":
        del content[rng.randrange(len(content)) :]
    elif what == "empty":
        content.clear()
    elif what == "insert":
        at = rng.randrange(len(content) + 1)
        content[at:at] = rng.randbytes(rng.choice((1, 4, 1000)))
    elif what == "bom":
        content[:0] = b"\xef\xbb\xbf"
    elif what == "utf-16":
        content = bytearray(content.decode(errors="replace").encode("utf-16"))
    elif what == "nul":
        content = bytearray(len(content))
    elif what == "double":
        content = content * 2
    elif what == "deep":
        content = bytearray(rng.choice((b"[", b'{"a":', b'["')) * 200_000)
    else:
        content = bytearray(rng.choice(TEXTS).encode(errors="surrogatepass"))
    file.write_bytes(content)
    return f"{file.name}: {what}"


def _parquet(rng: random.Random, run: Path, _outside: Path) -> str:
    """Columns and metadata of a trace, a profile, or what names its addresses."""
    file = rng.choice([each for each in files_of(run) if each.suffix == ".parquet" and is_ours(each)])
    read = pq.ParquetFile(pa.BufferReader(file.read_bytes()))
    table, metadata = read.read(use_threads=False), dict(read.metadata.metadata)
    name = rng.choice(table.column_names)
    at, rows = table.schema.get_field_index(name), table.num_rows
    what = rng.choice(
        ("type", "type", "nulls", "order", "extreme", "none", "lack", "extra", "few", "twice", "head", "bomb")
    )
    if what == "type":
        kinds: list[Any] = [
            ["x"] * rows,
            [1.5] * rows,
            [{"a": 1}] * rows,
            [[1, 2]] * rows,
            [True] * rows,
            [b"\xff"] * rows,
        ]
        table = table.set_column(at, name, pa.array(rng.choice(kinds)))
    elif what == "nulls":
        table = table.set_column(at, name, pa.nulls(rows, table.schema.field(at).type))
    elif what in ("order", "extreme"):
        values = table.column(at).to_pylist()
        if what == "order":
            rng.shuffle(values)
        else:
            kind = table.schema.field(at).type
            values[rng.randrange(rows)] = 2 ** (kind.bit_width - 1) - 1
        table = table.set_column(at, name, pa.array(values, table.schema.field(at).type))
    elif what == "none":
        table = table.slice(0, 0)
    elif what == "few":
        table = table.slice(0, rng.randrange(rows))
    elif what == "lack":
        table = table.drop_columns([name])
    elif what == "extra":
        table = table.append_column("more", pa.array(["x" * 100] * rows))
    elif what == "twice":
        table = table.append_column(name, table.column(at))
    elif what == "bomb":
        table = pa.table({field.name: pa.nulls(rng.choice((10**6, 12 * 10**6)), field.type) for field in table.schema})
    else:
        (header,) = (key for key in metadata if key.startswith(b"fsjoule."))
        head = json.loads(metadata[header])
        for _ in range(rng.choice((1, 1, 3))):
            place, key = rng.choice(places_in(head))
            place[key] = other_than(rng, place[key])
        metadata[header] = json.dumps(head).encode()
    sink = pa.BufferOutputStream()
    packing = rng.choice(("zstd", "gzip", "snappy", "none"))
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression=packing)
    file.write_bytes(bytes(sink.getvalue()))
    return f"{file.parent.name}/{file.name}: {what} {name}"


# ---------------------------------------------------------------------------------------------------------------- files


def _file_kind(rng: random.Random, run: Path, outside: Path) -> str:
    """Something else in the place of a file or a folder."""
    paths = [
        run / "measurements",
        *files_of(run),
        *(run / "measurements").iterdir(),
        run / "report.html",
        run / "confirmations",
        run / "gate.json",
    ]
    path = rng.choice(paths)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    what = rng.choice(("link", "link", "link", "fifo", "folder", "socket", "sparse", "gone", "file", "forbidden"))
    if what == "link":
        same = outside / "run" / path.relative_to(run)
        target = rng.choice(
            (
                outside / "secret",
                outside / "measurement",
                same,
                same,
                "/proc/self/environ",
                "/dev/zero",
                "/dev/tty",
                path,
            )
        )
        path.symlink_to(target)
        what = f"link to {target}"
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
        (path / "file").write_text("x")
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.getcwd()  # a socket's path may be short only
            os.chdir(path.parent)
            try:
                bound.bind(path.name)
            finally:
                os.chdir(here)
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(_HOLES_BYTES + 1)
    elif what in ("file", "forbidden"):
        path.write_bytes(rng.choice((b"x", b"{}", b"[]", rng.randbytes(5000))))
        if what == "forbidden":
            path.chmod(0)
    return f"{path.relative_to(run)}: {what}"


def _attachment(rng: random.Random, run: Path, outside: Path) -> str:
    """A further file in a measurement, of any name."""
    folder = rng.choice(sorted(each for each in (run / "measurements").iterdir() if each.is_dir()))
    names = (
        b"\xff\xfe.log",
        b"a\x1b[2J.log",
        b"a\nb.json",
        b"x" * 255,
        "é\u202e.txt".encode(),
        b"<b>.html",
        b"[/].log",
    )
    name = os.path.join(os.fsencode(folder), rng.choice((*names, b"more.log", b"console.log")))
    # What is there may be a FIFO by now.
    if os.path.lexists(name):
        os.unlink(name)
    if rng.random() < 0.4:
        os.symlink(os.fsencode(outside / "secret"), name)
    else:
        with open(name, "wb") as file:
            file.write(
                rng.choice((b"\x1b[2J", b"x" * 3_000_000, b"<script>", b"# " + b"\0" * 100 + b"\n# \x1b]0;a\x07\n"))
            )
    return f"{folder.name}/{os.fsencode(name)[-20:]!r}"


def _rename(rng: random.Random, run: Path, _outside: Path) -> str:
    """Another name for a measurement's folder."""
    folder = rng.choice(sorted((run / "measurements").iterdir()))
    names = (
        b"\xff\xfe",
        b"a\x1b[2J",
        b"01-x.partial",
        b"x" * 255,
        b"01-",
        b"-1",
        "²-x".encode(),
        b"0000001-x",
        b"[/]",
        b"99",
    )
    name = os.path.join(os.fsencode(folder.parent), rng.choice(names))
    os.rename(folder, name)
    return f"{folder.name} is {name[-12:]!r} now"


def _copy(file: str, to: str) -> None:
    """Copy a file; one that is all holes stays so: as bytes it would fill the disk."""
    if (size := Path(file).stat().st_size) > _HOLES_BYTES:
        Path(to).touch()
        os.truncate(to, size)
    else:
        shutil.copy2(file, to)


def _copies(rng: random.Random, run: Path, _outside: Path) -> str:
    folder = rng.choice(sorted(each for each in (run / "measurements").iterdir() if each.is_dir()))
    count = rng.choice((1, 1, 30))
    for number in range(count):
        shutil.copytree(folder, folder.with_name(f"{number + 80}-copy"), symlinks=True, copy_function=_copy)
    return f"{folder.name}: {count} copies"


_MUTATIONS: Final[tuple[tuple[Mutation, int], ...]] = (
    (values, 30),
    (shape, 12),
    (amounts, 2),
    (names_in_run, 5),
    (consistently, 10),
    (_bytes, 12),
    (_parquet, 12),
    (_file_kind, 12),
    (_attachment, 5),
    (_rename, 4),
    (_copies, 2),
)
