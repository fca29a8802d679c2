"""Profiles, the symbols of a boot and the pages of programs as Parquet and back, exactly.

A profile has one row an instruction: `address`, `page` and `executed`; the rest is JSON in the file's metadata under
`fsjoule.profile`. Symbols have one row a function: `address`, `name` and `module` (metadata `fsjoule.symbols`),
programs one row a page: `page` and `program` (`fsjoule.programs`). docs/results.md tells what to do with them.
"""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, with_config

from fsjoule.errors import ResultError
from fsjoule.host.plaintext import plain_line
from fsjoule.model import Profile, Symbols
from fsjoule.store.parquet import read_table
from fsjoule.store.schemas import STRICT, DocumentKind, decode, encode

T = TypeVar("T")

PROFILE_FILE: Final = "profile.parquet"
PROFILE_SCHEMA: Final = "fsjoule.profile/1"
SYMBOLS_SCHEMA: Final = "fsjoule.symbols/1"
PROGRAMS_FILE: Final = "programs.parquet"
PROGRAMS_SCHEMA: Final = "fsjoule.programs/1"
# All code that a kernel and its programs have is some MiB.
_MOST_ROWS: Final = 1 << 22
# A thousand years in nanoseconds.
_LONGEST_NS: Final = 1 << 55
_HINT: Final = "the profile is damaged; the measurement's figures do not depend on it"


@dataclass(frozen=True, slots=True)
class _ProfileLayout:
    """A kind of file: its columns, where its metadata is, what a row takes at most before it is packed, its name."""

    columns: Mapping[str, pa.DataType]
    key: bytes
    row_bytes: int
    what: str


_PROFILES: Final = _ProfileLayout(
    {"address": pa.uint64(), "page": pa.uint64(), "executed": pa.uint64()}, b"fsjoule.profile", 64, "a profile"
)
# Linux's own limit for a name is 512 bytes.
_TABLES: Final = _ProfileLayout(
    {"address": pa.uint64(), "name": pa.string(), "module": pa.string()}, b"fsjoule.symbols", 1200, "a kernel's symbols"
)


_PAGES: Final = _ProfileLayout(
    {"page": pa.uint64(), "program": pa.string()}, b"fsjoule.programs", 600, "pages of programs"
)


@dataclass(frozen=True, slots=True)
class _ProfileHeader:
    window_ns: int
    busy_ns: int
    instruction_ns: int
    repeated: int
    sampled: bool = False
    programs: dict[int, str] = field(default_factory=dict[int, str])
    schema: Literal["fsjoule.profile/1"] = PROFILE_SCHEMA


@dataclass(frozen=True, slots=True)
class _SymbolsHeader:
    folders: dict[str, str] = field(default_factory=dict[str, str])
    schema: Literal["fsjoule.symbols/1"] = SYMBOLS_SCHEMA


@dataclass(frozen=True, slots=True)
class _ProgramsHeader:
    schema: Literal["fsjoule.programs/1"] = PROGRAMS_SCHEMA


def _check_profile(header: _ProfileHeader) -> None:
    times = (header.window_ns, header.busy_ns, header.repeated)
    if header.instruction_ns < 1 or not all(0 <= each <= _LONGEST_NS for each in times):
        raise ValueError("it holds a time that cannot be")


_PROFILE: Final = DocumentKind(TypeAdapter(with_config(STRICT)(_ProfileHeader)), _check_profile)
_SYMBOLS: Final = DocumentKind(TypeAdapter(with_config(STRICT)(_SymbolsHeader)), lambda _: None)

_PROGRAMS: Final = DocumentKind(TypeAdapter(with_config(STRICT)(_ProgramsHeader)), lambda _: None)


def symbols_file(boot: int) -> str:
    """The name of the file with the symbols of a boot of the run."""
    return f"symbols-{boot}.parquet"


def encode_profile(profile: Profile) -> bytes:
    """The profile as a Parquet file, some 4 bytes a row."""
    times = (profile.window_ns, profile.busy_ns, profile.instruction_ns, profile.repeated)
    header = _ProfileHeader(*times, profile.sampled, dict(profile.programs))
    arrays = (profile.addresses, profile.pages, profile.executed)
    return _encoded(_PROFILES, arrays, encode(_PROFILE, header, "the profile"))


def encode_symbols(symbols: Symbols) -> bytes:
    """The symbols as a Parquet file, about 8 bytes each."""
    arrays = (symbols.addresses, symbols.names, symbols.modules)
    header = encode(_SYMBOLS, _SymbolsHeader(dict(symbols.folders)), "the symbols")
    return _encoded(_TABLES, arrays, header)


def encode_programs(programs: Mapping[int, str]) -> bytes:
    """Programs by their pages as a Parquet file, some 10 bytes a page."""
    pages = sorted(programs)
    header = encode(_PROGRAMS, _ProgramsHeader(), "the programs")
    return _encoded(_PAGES, (pages, [programs[page] for page in pages]), header)


def decode_programs(content: bytes, path: Path) -> dict[int, str]:
    """Read the bytes of `encode_programs`; names become plain. Raises ResultError, which names `path`, if damaged."""
    table, _ = _decoded(content, path, _PAGES, _PROGRAMS, PROGRAMS_SCHEMA)
    names = map(plain_line, table.column("program").to_pylist())
    return dict(zip(table.column("page").to_pylist(), names, strict=True))


def decode_profile(content: bytes, path: Path) -> Profile:
    """Read the bytes of `encode_profile`. Raises ResultError, which names `path`, if they are damaged."""
    table, header = _decoded(content, path, _PROFILES, _PROFILE, PROFILE_SCHEMA)
    addresses, pages, executed = (table.column(name).to_numpy() for name in _PROFILES.columns)
    # Their sum is to stay a number of 64 bits.
    if len(executed) and int(executed.max()) > _LONGEST_NS // len(executed):
        raise ResultError(f"{plain_line(str(path))}: column 'executed' holds a count that cannot be", hint=_HINT)
    return Profile(
        addresses=addresses,
        pages=pages,
        executed=executed,
        window_ns=header.window_ns,
        busy_ns=header.busy_ns,
        instruction_ns=header.instruction_ns,
        repeated=header.repeated,
        sampled=header.sampled,
        programs={page: plain_line(name) for page, name in header.programs.items()},
    )


def decode_symbols(content: bytes, path: Path) -> Symbols:
    """Read the bytes of `encode_symbols`; names become plain. Raises ResultError, which names `path`, if damaged."""
    table, header = _decoded(content, path, _TABLES, _SYMBOLS, SYMBOLS_SCHEMA)
    addresses = table.column("address").to_numpy()
    if bool((addresses[1:] < addresses[:-1]).any()):
        raise ResultError(f"{plain_line(str(path))}: column 'address' does not ascend", hint=_HINT)
    names, modules = ([plain_line(text) for text in table.column(name).to_pylist()] for name in ("name", "module"))
    return Symbols(addresses, names, modules, header.folders)


def _encoded(layout: _ProfileLayout, arrays: tuple[Any, ...], header: bytes) -> bytes:
    kinds = zip(arrays, layout.columns.values(), strict=True)
    schema = pa.schema(list(layout.columns.items()), metadata={layout.key: header})
    table = pa.Table.from_arrays([pa.array(values, type=kind) for values, kind in kinds], schema=schema)
    numbers = [name for name, kind in layout.columns.items() if kind == pa.uint64()]
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    ) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _decoded(
    content: bytes, path: Path, layout: _ProfileLayout, kind: DocumentKind[T], schema: str
) -> tuple[pa.Table, T]:
    def header_of(metadata: bytes) -> tuple[T, Mapping[str, pa.DataType]]:
        return decode(kind, metadata, schema, path), layout.columns

    table, header = read_table(
        content,
        path,
        key=layout.key,
        header=header_of,
        row_bytes=layout.row_bytes,
        most_rows=_MOST_ROWS,
        what=layout.what,
        hint=_HINT,
    )
    if any(table.column(name).null_count for name in layout.columns):
        raise ResultError(f"{plain_line(str(path))} lacks values", hint=_HINT)
    return table, header
