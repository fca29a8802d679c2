"""The first tables."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# A migration never changes: it repeats definitions that schema.py may have changed since.
_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_FIGURES: Final = (
    "throughput_mib_per_s",
    "iops",
    "energy_mj_per_mib",
    "energy_mj_per_mib_uncertainty",
    "energy_net_mj_per_mib",
    "energy_net_mj_per_mib_uncertainty",
    "energy_mj",
    "energy_mj_uncertainty",
    "energy_net_mj",
    "energy_net_mj_uncertainty",
    "mean_power_w",
    "mean_power_w_uncertainty",
    "cpu_s_per_mib",
    "write_amplification",
    "latency_p99_ms",
    "duration_s",
)


def upgrade() -> None:
    _kernels_and_series()
    _runs()
    _measurements()


def _kernels_and_series() -> None:
    op.create_table(
        "kernels",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("release", _TEXT, nullable=False),
        sa.Column("version", _TEXT, nullable=False),
        sa.Column("sort_key", _TEXT, nullable=False),
        sa.UniqueConstraint("release", "version", name="kernels_release_version"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", _TEXT, nullable=False),
        sa.Column("suite", _TEXT, nullable=False),
        sa.Column("board", _TEXT, nullable=False),
        sa.Column("storage", _TEXT, nullable=False),
        sa.Column("filesystem", _TEXT, nullable=False),
        sa.Column("make_options", _TEXT, nullable=False),
        sa.Column("mount_options", _TEXT, nullable=False),
        sa.Column("provision", _TEXT, nullable=False),
        sa.Column("workload", _TEXT, nullable=False),
        sa.Column("simulated", sa.Boolean, nullable=False),
        sa.UniqueConstraint("key", name="series_key"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", _TEXT, nullable=False),
        sa.Column("path", _TEXT, nullable=False),
        sa.Column("started_utc", _TEXT, nullable=False),
        sa.Column("status", _TEXT, nullable=False),
        sa.Column("simulated", sa.Boolean, nullable=False),
        sa.Column("suite", _TEXT, nullable=False),
        sa.Column("board", _TEXT),
        sa.Column("branch", _TEXT),
        sa.Column("commit_id", _TEXT),
        sa.Column("fixed_digest", sa.LargeBinary(16), nullable=False),
        sa.Column("final_digest", sa.LargeBinary(16)),
        sa.UniqueConstraint("run_id", name="runs_run_id"),
    )
    op.create_index("runs_branch", "runs", ["branch"])
    op.create_table(
        "run_kernels",
        sa.Column("run", sa.Integer, sa.ForeignKey("runs.id", name="run_kernels_run"), nullable=False),
        sa.Column("label", _TEXT, nullable=False),
        sa.Column("kernel", sa.Integer, sa.ForeignKey("kernels.id", name="run_kernels_kernel"), nullable=False),
        sa.PrimaryKeyConstraint("run", "label", name="run_kernels_pkey"),
    )
    op.create_index("run_kernels_by_label", "run_kernels", ["label", "kernel"])


def _measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("series", sa.Integer, nullable=False),
        sa.Column("kernel", sa.Integer),
        sa.Column("started_utc", _TEXT, nullable=False),
        sa.Column("boot", sa.Integer, nullable=False),
        sa.Column("repetition", sa.Integer, nullable=False),
        sa.Column("valid", sa.Boolean, nullable=False),
        sa.Column("invalid_reasons", _TEXT),
        *(sa.Column(name, sa.Double) for name in _FIGURES),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("run", "number", name="measurements_pkey"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="measurements_run"),
        sa.ForeignKeyConstraint(["series"], ["series.id"], name="measurements_series"),
        sa.ForeignKeyConstraint(["kernel"], ["kernels.id"], name="measurements_kernel"),
    )
    op.create_index("measurements_by_series", "measurements", ["series", "valid", "started_utc", "kernel", "run"])
    op.create_index("measurements_by_kernel", "measurements", ["kernel"])
