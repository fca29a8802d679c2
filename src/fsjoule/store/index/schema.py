"""The index's tables. Each change needs another number in INDEX_VERSION: an index of another one is made anew.

::

    kernels ──┐
    series ───┴─< measurements >── runs
    change_states, pruned_runs: what the documents of states say
    judged_series, which only save time

Names of columns end in their unit, as everywhere. Text is compared by bytes on both databases, which sorts times and
`kernels.sort_key`s correctly.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from fsjoule.model.metrics import Metric

# PostgreSQL would sort by its server's language.
PlainText: Final = Text().with_variant(Text(collation="C"), "postgresql")
DIGEST_BYTES: Final = 16

# Standard uncertainties (k=1) of those figures that have one.
UNCERTAINTY_COLUMNS: Final = {metric: f"{metric.row.column}_uncertainty" for metric in Metric if metric.row.uncertain}
# Each metric's column, followed by its uncertainty's.
FIGURE_COLUMNS: Final = tuple(
    name for metric in Metric for name in (metric.row.column, UNCERTAINTY_COLUMNS.get(metric)) if name
)

# Another metric is another version by itself.
INDEX_VERSION: Final = f"2.{sha256(' '.join(FIGURE_COLUMNS).encode()).hexdigest()[:8]}"

metadata: Final = MetaData()

index_version: Final = Table(
    "fsjoule_index_version",  # the database may have another application's tables
    metadata,
    Column("version", PlainText, nullable=False),
    PrimaryKeyConstraint("version", name="fsjoule_index_version_pkey"),
)

kernels: Final = Table(
    "kernels",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("release", PlainText, nullable=False),  # uname -r
    Column("version", PlainText, nullable=False),  # of its package; '' if unknown
    Column("sort_key", PlainText, nullable=False),
    UniqueConstraint("release", "version", name="kernels_release_version"),
)

series: Final = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", PlainText, nullable=False),  # hash of the columns below, the same in every index
    Column("suite", PlainText, nullable=False),
    Column("board", PlainText, nullable=False),
    Column("storage", PlainText, nullable=False),
    Column("filesystem", PlainText, nullable=False),
    Column("make_options", PlainText, nullable=False),  # JSON array
    Column("mount_options", PlainText, nullable=False),  # JSON array
    Column("provision", PlainText, nullable=False),
    Column("workload", PlainText, nullable=False),
    Column("simulated", Boolean, nullable=False),
    UniqueConstraint("key", name="series_key"),
)

runs: Final = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", PlainText, nullable=False),
    Column("path", PlainText, nullable=False),  # of the folder, on the machine that imported it last
    Column("started_utc", PlainText, nullable=False),
    Column("status", PlainText, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("suite", PlainText, nullable=False),
    Column("board", PlainText),
    Column("branch", PlainText),
    Column("commit_id", PlainText),
    Column("kernel_role", PlainText),  # "reference": measured beside the kernel under test
    Column("place", PlainText),  # labgrid's: two boards of one type are at two places
    Column("exporter", PlainText),
    Column("meter", PlainText),  # its serial number
    Column("job", PlainText),  # the LAVA job's page, or its number, device and worker
    Column("fixed_digest", LargeBinary(DIGEST_BYTES), nullable=False),  # of the fields that never change
    Column("final_digest", LargeBinary(DIGEST_BYTES)),  # of all of run.json; null until the run is complete
    UniqueConstraint("run_id", name="runs_run_id"),
    Index("runs_branch", "branch"),
)

run_kernels: Final = Table(
    "run_kernels",
    metadata,
    Column("run", Integer, ForeignKey("runs.id", name="run_kernels_run"), nullable=False),
    Column("label", PlainText, nullable=False),  # the run's name of the kernel: 6.1, sid, a folder's name
    Column("kernel", Integer, ForeignKey("kernels.id", name="run_kernels_kernel"), nullable=False),
    PrimaryKeyConstraint("run", "label", name="run_kernels_pkey"),
    Index("run_kernels_by_label", "label", "kernel"),
)

measurements: Final = Table(
    "measurements",
    metadata,
    Column("run", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("series", Integer, nullable=False),
    Column("kernel", Integer),
    Column("started_utc", PlainText, nullable=False),
    Column("boot", Integer, nullable=False),
    Column("repetition", Integer, nullable=False),
    Column("valid", Boolean, nullable=False),
    Column("invalid_reasons", PlainText),  # JSON array; null if valid
    *(Column(name, Double) for name in FIGURE_COLUMNS),
    Column("digest", LargeBinary(DIGEST_BYTES), nullable=False),  # of measurement.json
    Column("kernel_warnings", PlainText),  # JSON array; null without any
    PrimaryKeyConstraint("run", "number", name="measurements_pkey"),
    ForeignKeyConstraint(["run"], ["runs.id"], name="measurements_run"),
    ForeignKeyConstraint(["series"], ["series.id"], name="measurements_series"),
    ForeignKeyConstraint(["kernel"], ["kernels.id"], name="measurements_kernel"),
    # In the order of reading a series; the last columns serve the list of series without the table.
    Index("measurements_by_series", "series", "valid", "started_utc", "kernel", "run"),
    Index("measurements_by_kernel", "kernel"),
)
# These two hold what documents say, of series, kernels and runs that the index may lack: by names, not by numbers.
change_states: Final = Table(
    "change_states",
    metadata,
    Column("id", PlainText, nullable=False),  # the same in every index
    Column("series", PlainText, nullable=False),  # its key
    Column("metric", PlainText),  # null: all metrics
    Column("ratio", Double),  # of the change, whose direction counts; null: any
    Column("before_utc", PlainText),  # start of the points that the change lies between
    Column("after_utc", PlainText),
    Column("before_release", PlainText),  # kernels of these points
    Column("before_version", PlainText),
    Column("after_release", PlainText),
    Column("after_version", PlainText),
    Column("state", PlainText, nullable=False),
    Column("made_utc", PlainText, nullable=False),
    Column("run_id", PlainText),  # which showed it
    Column("commit_id", PlainText),  # the culprit
    Column("why", PlainText),  # in the words of whoever accepted it
    Column("taken_back", Boolean, nullable=False),
    PrimaryKeyConstraint("id", name="change_states_pkey"),
)

pruned_runs: Final = Table(
    "pruned_runs",
    metadata,
    Column("run_id", PlainText, nullable=False),
    Column("pruned_utc", PlainText, nullable=False),
    Column("back_utc", PlainText, nullable=False, server_default=""),  # not pruned any more if later
    PrimaryKeyConstraint("run_id", name="pruned_runs_pkey"),
)

# A verdict counts for as long as it would be made from the same again.
judged_series: Final = Table(
    "judged_series",
    metadata,
    Column("series", Integer, ForeignKey("series.id", name="judged_series_series"), nullable=False),
    Column("question", LargeBinary(DIGEST_BYTES), nullable=False),  # digest: order, figures, branches
    Column("made_from", LargeBinary(DIGEST_BYTES), nullable=False),  # digest: rules, rows, kernels' labels
    Column("judged_utc", PlainText, nullable=False),
    Column("histories", PlainText, nullable=False),  # JSON
    PrimaryKeyConstraint("series", "question", name="judged_series_pkey"),
)
