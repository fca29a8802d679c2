"""Runs of a kernel that is measured beside the one under test."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; earlier runs have no role."""
    op.add_column("runs", sa.Column("kernel_role", sa.Text().with_variant(sa.Text(collation="C"), "postgresql")))
