"""Checks of a Parquet file before its rows are read: a few bytes can claim more rows than fit into memory."""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_BYTES: Final = 1 << 20  # the largest overhead of a row group


def check_columns(
    file: pq.ParquetFile, columns: Mapping[str, pa.DataType], *, row_bytes: int, most_rows: int | None, what: str
) -> None:
    """Check that a file has these columns, of these types, and consistent numbers of rows.

    A row takes at most `row_bytes` before compression. `what` is the kind of file, which has at most `most_rows`.
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
