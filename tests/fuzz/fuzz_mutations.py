"""Ways to damage a run folder, or to make it hostile. All chance comes from the generator that is given."""

from __future__ import annotations

import copy
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

TEXTS: Final = (
    "", " ", "\n", "\0", "\x01", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x7f", "\u202eabc", "\ufffe",
    "\ud800", "[/]", "[bold", "[red]x[/red]", ":smile:", "<script>alert(1)</script>", "</svg>", "&amp;", "'\"`$(id)",
    "|", "x" * 300, "x" * 5000, "é" * 70_000, "x" * 1_000_000, "../../outside", "/etc/passwd", "..", ".", "a/b",
    "{{ 7*7 }}", "%s%n", "fsjoule.run/1", "fsjoule.run/3", "fsjoule.measurement/1", "fsjoule.run/9", "ext4",
    "btrfs:zstd", "virtual", "6.12",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "nan", "card",
    "complete", "running", "read", "randwrite", "mount", "power-loss", "dm-flakey", "timed", "fio", "root", "quick",
    "elc2015", "energy-emmc-2025", "regressed", "²", "-1", "\u2028", "\U000e0041", "🜚" * 50, "a" + "\u0301" * 500,
)  # fmt: skip
# More than any reader takes, and none of it on the disk.
_HOLES_BYTES: Final = 10 << 30
NAN: Final = float("nan")
NUMBERS: Final = (
    0, -1, 1, 2, 10**6, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**70, 10**400, -(2**63), 0.0, -0.0, 1e-320, 1e-300,
    1e-9, 0.5, 1e9, 1e15, 1e17, 1e18, 1e19, 1e300, -1e18, NAN, float("inf"), float("-inf"),
)  # fmt: skip
OTHERS: Final = (None, True, False, [], {}, [[]], {"": ""}, [None], ["x"], [0], {"value": 1.0, "uncertainty": 0.0})

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


# ------------------------------------------------------------------------------------------------------------ documents


def _values(rng: random.Random, run: Path, _outside: Path) -> str:
    """Some values of a document."""
    file = _document(rng, run)
    document: Any = json.loads(file.read_text())
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, key = rng.choice(list(_places(document)))
        old = place[key]
        place[key] = _other(rng, old)
        told.append(f"{key}: {str(place[key])[:40]!r}")
    file.write_text(json.dumps(document))
    return f"{file.name}: {told}"


def _shape(rng: random.Random, run: Path, _outside: Path) -> str:
    """Keys and parts of a document."""
    file = _document(rng, run)
    document: Any = json.loads(file.read_text())
    places = list(_places(document))
    place, key = rng.choice(places)
    what = rng.choice(("delete", "copy", "rename", "many", "twice", "deep", "swap"))
    if what == "delete":
        del place[key]
    elif what == "copy":
        other, name = rng.choice(places)
        place[key] = copy.deepcopy(other[name])
    elif what == "swap":
        other, name = rng.choice(places)
        place[key], other[name] = copy.deepcopy(other[name]), copy.deepcopy(place[key])
    elif what == "rename" and isinstance(place, dict):
        place[rng.choice(TEXTS)] = place.pop(key)
    elif what == "many":
        lists = [(p, k) for p, k in places if isinstance(p[k], list) and p[k]]
        place, key = rng.choice(lists)
        place[key] = place[key] * rng.choice((2, 50, 1000))
    text = json.dumps(document)
    if what == "twice" and isinstance(document, dict):
        name = rng.choice(list(document))
        text = f"{{{json.dumps(name)}: {json.dumps(_other(rng, document[name]))}, {text[1:]}"
    elif what == "deep":
        depth = rng.choice((30, 60, 300, 900, 100_000))
        text = text.replace(json.dumps(place[key]), "[" * depth + "]" * depth, 1)
    file.write_text(text)
    return f"{file.name}: {what} {key}"


def _amounts(rng: random.Random, run: Path, _outside: Path) -> str:
    """Very many values in a list or an object, or in the place of one."""
    file = rng.choice((_document(rng, run), *(each for each in _files(run) if each.name == "steps.json")))
    document: Any = json.loads(file.read_text())
    places = [(place, key) for place, key in _places(document) if isinstance(place[key], list | dict)]
    count = rng.choice((30_000, 40_000, 4_000_000))
    value: Any = rng.choice(([0], ["x"], [{}], [[]], [[0] * 30_000], [{"a": 0}]))
    many: Any = value * (count // 30_000 if value[0] and isinstance(value[0], list) else count)
    if rng.random() < 0.3:
        many = {str(number): each for number, each in enumerate(many[:1_000_000])}
    elif rng.random() < 0.3:
        many = [f"{number:07d}-x" for number in range(min(count, 1_000_000))]
    if places and rng.random() < 0.9:
        place, key = rng.choice(places)
        old = place[key]
        place[key] = old * (count // len(old)) if old and isinstance(old, list) and rng.random() < 0.3 else many
    else:
        document, key = many, "(whole)"
    file.write_text(json.dumps(document))
    return f"{file.name}: {count} in {key}"


def _names_in_run(rng: random.Random, run: Path, outside: Path) -> str:
    """What run.json lists."""
    document: Any = json.loads(_run_file(run).read_text())
    name = rng.choice(
        (
            "../../../outside/measurement",
            "../../outside/measurement",
            str(outside / "measurement"),
            *TEXTS,
            "01-x.partial",
            "99-none",
        )
    )
    document["measurements"] = [*document["measurements"], name]
    _run_file(run).write_text(json.dumps(document))
    return f"measurements: {name[:60]!r}"


def _consistently(rng: random.Random, run: Path, _outside: Path) -> str:
    """One name everywhere, so that it is what tables and charts are of."""
    old = rng.choice(("ext4", "virtual", "quick", "6.1", "card", "randread-16k", "btrfs", "fsjoule", "k3v9q2"))
    new = rng.choice(TEXTS)
    for file in (each for each in _files(run) if each.suffix == ".json" and _is_ours(each)):
        text = file.read_text().replace(json.dumps(old), json.dumps(new))
        file.write_text(text)
    return f"all {old!r}: {new[:40]!r}"


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, each in items:
        found.append((value, key))
        found += _places(each)
    return found


def _other(rng: random.Random, old: Any) -> Any:
    """Mostly of the same type: what is of another is refused at once."""
    if rng.random() < 0.8:
        if isinstance(old, str):
            return rng.choice((*TEXTS, old + rng.choice(TEXTS)))
        if isinstance(old, float):
            return rng.choice(
                (*map(float, [n for n in NUMBERS if abs(n) < 1e308 or n is NAN]), old * 1e6, -old, old / 1e6)
            )
        if isinstance(old, int) and not isinstance(old, bool):
            return rng.choice((*[n for n in NUMBERS if isinstance(n, int)], old + 1, old * 1000))
    return rng.choice((*TEXTS, *NUMBERS, *copy.deepcopy(OTHERS)))


def _document(rng: random.Random, run: Path) -> Path:
    files = [each for each in _files(run) if each.suffix == ".json" and _is_ours(each)]
    return rng.choice([each for each in files if each.name == "run.json"] * 3 + files)


# ---------------------------------------------------------------------------------------------------------------- bytes


def _bytes(rng: random.Random, run: Path, _outside: Path) -> str:
    file = _file(rng, run)
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
    file = rng.choice([each for each in _files(run) if each.suffix == ".parquet" and _is_ours(each)])
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
            place, key = rng.choice(_places(head))
            place[key] = _other(rng, place[key])
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
        *_files(run),
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


def _files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if not path.is_dir())


def _file(rng: random.Random, run: Path) -> Path:
    return rng.choice([path for path in _files(run) if _is_ours(path)])


def _run_file(run: Path) -> Path:
    return next(each for each in _files(run) if each.name == "run.json" and _is_ours(each))


def _is_ours(path: Path) -> bool:
    """Whether it can be changed: a link's target is not in the run, a FIFO would be waited for."""
    return not path.is_symlink() and path.is_file() and path.stat().st_size < 1 << 24


_MUTATIONS: Final[tuple[tuple[Mutation, int], ...]] = (
    (_values, 30),
    (_shape, 12),
    (_amounts, 2),
    (_names_in_run, 5),
    (_consistently, 10),
    (_bytes, 12),
    (_parquet, 12),
    (_file_kind, 12),
    (_attachment, 5),
    (_rename, 4),
    (_copies, 2),
)
