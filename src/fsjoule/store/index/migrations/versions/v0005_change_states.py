"""What became of the changes in histories."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table; earlier changes are new or were confirmed by documents."""
    op.create_table(
        "change_states",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("series", sa.Integer, sa.ForeignKey("series.id", name="change_states_series"), nullable=False),
        sa.Column("metric", _TEXT),
        sa.Column("ratio", sa.Double),
        sa.Column("before_utc", _TEXT),
        sa.Column("after_utc", _TEXT),
        sa.Column("before_kernel", sa.Integer, sa.ForeignKey("kernels.id", name="change_states_before_kernel")),
        sa.Column("after_kernel", sa.Integer, sa.ForeignKey("kernels.id", name="change_states_after_kernel")),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("made_utc", _TEXT, nullable=False),
        sa.Column("run_id", _TEXT),
        sa.Column("commit_id", _TEXT),
        sa.Column("why", _TEXT),
    )
    op.create_index("change_states_by_series", "change_states", ["series", "metric"])
