"""Reads Parquet files that others may have written: checked before their rows are read.

A few bytes can claim more rows than fit into memory.
"""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fsjoule.errors import ResultError
from fsjoule.host.plaintext import plain, plain_line

T = TypeVar("T")

_GROUP_BYTES: Final = 1 << 20  # the largest overhead of a row group

# Numbers of fields in Parquet's metadata (https://github.com/apache/parquet-format, parquet.thrift).
_ROW_GROUPS, _COLUMNS, _GROUP_ROWS, _COLUMN = 4, 1, 3, 3
_PACKED, _DATA, _DICTIONARY = 7, 9, 11
_PAGE_SIZE, _PAGE_PACKED = 2, 3
# Kinds of values in Thrift's compact protocol (https://github.com/apache/thrift, doc/specs/thrift-compact-protocol.md).
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_NUMBERS: Final = (4, 5, 6)
_DEEPEST: Final = 16
_FOOT: Final = 8  # the footer's length, and PAR1


def read_table(
    content: bytes,
    path: Path,
    *,
    key: bytes,
    header: Callable[[bytes], tuple[T, Mapping[str, pa.DataType]]],
    row_bytes: int,
    most_rows: int | None,
    what: str,
    hint: str,
) -> tuple[pa.Table, T]:
    """The columns of a file, and its header: `header` makes it, and the columns, of the metadata's value at `key`.

    A row takes at most `row_bytes` before compression. `what` is the kind of file, which has at most `most_rows`.
    Raises ResultError with `hint`, which names `path`, if it is damaged or another file.
    """
    name = plain_line(str(path))
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            metadata = (file.metadata.metadata or {}).get(key)
            if metadata is None:
                raise ResultError(f"{name} is a Parquet file without the metadata of {what}", hint=hint)
            value, columns = header(metadata)
            try:
                _check_pages(content, row_bytes=row_bytes, most_rows=most_rows, what=what)
                _check_columns(file, columns, row_bytes=row_bytes, most_rows=most_rows, what=what)
            except ValueError as error:
                raise ResultError(f"{name}{error}", hint=hint) from error
            return file.read(columns=list(columns)), value
    # Damaged files make pyarrow raise errors of its own, and most of Python's.
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError, pa.ArrowException) as error:
        raise ResultError(f"{name} cannot be read: {plain(str(error))}", hint=hint) from error


def _check_pages(content: bytes, *, row_bytes: int, most_rows: int | None, what: str) -> None:
    """Check how many bytes each page says it unpacks to: pyarrow takes that memory, whatever the footer says.

    Errors are those of `_check_columns`, which calls for pages and so comes after this.
    """
    try:
        length = int.from_bytes(content[-_FOOT:-4], "little")
        footer = _Thrift(content, len(content) - _FOOT - length).struct()
        rows = sum(group[_GROUP_ROWS] for group in footer[_ROW_GROUPS])
        if most_rows is not None and rows > most_rows:
            raise ValueError(f" has {rows} rows; {what} has at most {most_rows}")
        for group in footer[_ROW_GROUPS]:
            allowed = group[_GROUP_ROWS] * row_bytes + _GROUP_BYTES
            for column in group[_COLUMNS]:
                facts = column[_COLUMN]
                at = min(facts[_DATA], facts.get(_DICTIONARY) or facts[_DATA])
                end = at + facts[_PACKED]
                while at < end:
                    header = _Thrift(content, at)
                    page = header.struct()
                    allowed -= page[_PAGE_SIZE]
                    if allowed < 0 or page[_PAGE_SIZE] < 0 or page[_PAGE_PACKED] < 0:
                        raise ValueError(" has pages of more bytes than its rows have")
                    at = header.at + page[_PAGE_PACKED]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(" has metadata that contradicts itself") from error


@dataclass
class _Thrift:
    """Reads Thrift's compact protocol from `content` at `at`."""

    content: bytes
    at: int

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """A struct's fields by their numbers. Raises IndexError at the content's end, ValueError for another form."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - any of Thrift's
        if depth > _DEEPEST:
            raise ValueError(" has metadata that is nested too deep")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _NUMBERS:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()  # noqa: PLR2004 - 15: the count follows
            # Booleans in a list have a byte each, unlike fields.
            each = _BYTE if head & 15 in (_TRUE, _FALSE) else head & 15
            return [self._value(each, depth + 1) for _ in range(min(count, len(self.content)))]
        sizes = {_BYTE: 1, _DOUBLE: 8}
        if kind != _BINARY and kind not in sizes:
            raise ValueError(" has metadata of an unknown kind")
        size = sizes.get(kind) or self._varint()
        self.at += size
        return None

    def _byte(self) -> int:
        if self.at < 0:
            raise IndexError
        self.at += 1
        return self.content[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:  # noqa: PLR2004 - the last byte, and the longest number
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _check_columns(
    file: pq.ParquetFile, columns: Mapping[str, pa.DataType], *, row_bytes: int, most_rows: int | None, what: str
) -> None:
    """Check that a file has these columns, of these types, and consistent numbers of rows.

    Raises ValueError, whose text continues the file's name.
    """
    schema = file.schema_arrow
    for name, kind in columns.items():
        at = schema.get_all_field_indices(name)
        if len(at) != 1:
            raise ValueError(f" lacks a column, or has it twice: {name!r}")
        if schema.field(at[0]).type != kind:
            raise ValueError(f": column {name!r} is of type {schema.field(at[0]).type}, not {kind}")
    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    # A wrong size of a histogram in a column's metadata is an error where rows are read, but ends the process where
    # pyarrow is asked for the metadata. One row takes no memory.
    for number in range(metadata.num_row_groups):
        next(file.iter_batches(batch_size=1, row_groups=[number], columns=list(columns)), None)
    # File, row groups and their columns each have a number; pyarrow allocates memory for the column's.
    ours = [at for at in range(metadata.num_columns) if metadata.schema.column(at).path in columns]
    agree = all(group.column(at).num_values == group.num_rows >= 0 for group in groups for at in ours)
    if not agree or rows != metadata.num_rows:
        raise ValueError(" contradicts itself about its number of rows")
    if most_rows is not None and not 0 <= rows <= most_rows:
        raise ValueError(f" has {rows} rows; {what} has at most {most_rows}")
    if any(not 0 <= group.total_byte_size <= group.num_rows * row_bytes + _GROUP_BYTES for group in groups):
        raise ValueError(f" has more bytes than rows of {what} have")
