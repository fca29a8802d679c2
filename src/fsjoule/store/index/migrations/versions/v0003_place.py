"""Where runs were measured, and with which meter: the place identifies a board among its type."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns; earlier runs get values when they are imported again."""
    for name in ("place", "exporter", "meter"):
        op.add_column("runs", sa.Column(name, _TEXT))
