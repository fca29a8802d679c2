"""Ways to change a run folder's documents: values, keys, amounts and names. All chance comes from the generator."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any, Final

TEXTS: Final = (
    "", " ", "\n", "\0", "\x01", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x7f", "\u202eabc", "\ufffe",
    "\ud800", "[/]", "[bold", "[red]x[/red]", ":smile:", "<script>alert(1)</script>", "</svg>", "&amp;", "'\"`$(id)",
    "|", "x" * 300, "x" * 5000, "é" * 70_000, "x" * 1_000_000, "../../outside", "/etc/passwd", "..", ".", "a/b",
    "{{ 7*7 }}", "%s%n", "fsjoule.run/1", "fsjoule.measurement/1", "fsjoule.run/9", "ext4",
    "btrfs:zstd", "virtual", "6.12",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "nan", "card",
    "complete", "running", "read", "randwrite", "mount", "power-loss", "dm-flakey", "timed", "fio", "root", "quick",
    "elc2015", "energy-emmc-2025", "regressed", "²", "-1", "\u2028", "\U000e0041", "🜚" * 50, "a" + "\u0301" * 500,
)  # fmt: skip
NAN: Final = float("nan")
NUMBERS: Final = (
    0, -1, 1, 2, 10**6, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**70, 10**400, -(2**63), 0.0, -0.0, 1e-320, 1e-300,
    1e-9, 0.5, 1e9, 1e15, 1e17, 1e18, 1e19, 1e300, -1e18, NAN, float("inf"), float("-inf"),
)  # fmt: skip
OTHERS: Final = (None, True, False, [], {}, [[]], {"": ""}, [None], ["x"], [0], {"value": 1.0, "uncertainty": 0.0})


def values(rng: random.Random, run: Path, _outside: Path) -> str:
    """Some values of a document."""
    file = _document(rng, run)
    document: Any = json.loads(file.read_text())
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, key = rng.choice(list(places_in(document)))
        old = place[key]
        place[key] = other_than(rng, old)
        told.append(f"{key}: {str(place[key])[:40]!r}")
    file.write_text(json.dumps(document))
    return f"{file.name}: {told}"


def shape(rng: random.Random, run: Path, _outside: Path) -> str:
    """Keys and parts of a document."""
    file = _document(rng, run)
    document: Any = json.loads(file.read_text())
    places = list(places_in(document))
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
        text = f"{{{json.dumps(name)}: {json.dumps(other_than(rng, document[name]))}, {text[1:]}"
    elif what == "deep":
        depth = rng.choice((30, 60, 300, 900, 100_000))
        text = text.replace(json.dumps(place[key]), "[" * depth + "]" * depth, 1)
    file.write_text(text)
    return f"{file.name}: {what} {key}"


def amounts(rng: random.Random, run: Path, _outside: Path) -> str:
    """Very many values in a list or an object, or in the place of one."""
    file = rng.choice((_document(rng, run), *(each for each in files_of(run) if each.name == "steps.json")))
    document: Any = json.loads(file.read_text())
    places = [(place, key) for place, key in places_in(document) if isinstance(place[key], list | dict)]
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


def names_in_run(rng: random.Random, run: Path, outside: Path) -> str:
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


def consistently(rng: random.Random, run: Path, _outside: Path) -> str:
    """One name everywhere, so that it is what tables and charts are of."""
    old = rng.choice(("ext4", "virtual", "quick", "6.1", "card", "randread-16k", "btrfs", "fsjoule", "k3v9q2"))
    new = rng.choice(TEXTS)
    for file in (each for each in files_of(run) if each.suffix == ".json" and is_ours(each)):
        text = file.read_text().replace(json.dumps(old), json.dumps(new))
        file.write_text(text)
    return f"all {old!r}: {new[:40]!r}"


def places_in(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, each in items:
        found.append((value, key))
        found += places_in(each)
    return found


def other_than(rng: random.Random, old: Any) -> Any:
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
    files = [each for each in files_of(run) if each.suffix == ".json" and is_ours(each)]
    return rng.choice([each for each in files if each.name == "run.json"] * 3 + files)


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if not path.is_dir())


def file_of(rng: random.Random, run: Path) -> Path:
    return rng.choice([path for path in files_of(run) if is_ours(path)])


def _run_file(run: Path) -> Path:
    return next(each for each in files_of(run) if each.name == "run.json" and is_ours(each))


def is_ours(path: Path) -> bool:
    """Whether it can be changed: a link's target is not in the run, a FIFO would be waited for."""
    return not path.is_symlink() and path.is_file() and path.stat().st_size < 1 << 24
