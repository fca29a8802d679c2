"""Runs that were removed from the index for good."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table; nothing was pruned before."""
    op.create_table(
        "pruned_runs",
        sa.Column("run_id", _TEXT, nullable=False),
        sa.Column("pruned_utc", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pruned_runs_pkey"),
    )
