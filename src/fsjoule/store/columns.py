"""What a Parquet file of ours has to be before its rows are read: a few bytes can claim what no memory would hold."""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

# What a group of rows takes at most, beside its rows.
_GROUP_BYTES: Final = 1 << 20


def check_columns(
    file: pq.ParquetFile, columns: Mapping[str, pa.DataType], *, row_bytes: int, most_rows: int | None, what: str
) -> None:
    """Whether a file has these columns, of these types, and as many rows as it says.

    A row takes `row_bytes` at most before it is packed. Raises ValueError with what is wrong, to be told behind the
    file's name; `what` is the kind of file, which has `most_rows` at most.
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
    # The file says it, each row group and each column in it: pyarrow makes room for what the column says.
    ours = [at for at in range(metadata.num_columns) if metadata.schema.column(at).path in columns]
    agree = all(group.column(at).num_values == group.num_rows >= 0 for group in groups for at in ours)
    if not agree or rows != metadata.num_rows:
        raise ValueError(" contradicts itself in how many rows it has")
    if most_rows is not None and not 0 <= rows <= most_rows:
        raise ValueError(f" has {rows} rows; {what} has {most_rows} at most")
    if any(not 0 <= group.total_byte_size <= group.num_rows * row_bytes + _GROUP_BYTES for group in groups):
        raise ValueError(f" has more bytes than rows of {what} have")
