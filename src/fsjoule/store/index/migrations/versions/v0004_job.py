"""The LAVA job that a run was measured for."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column; earlier runs were measured without LAVA."""
    op.add_column("runs", sa.Column("job", _TEXT))
