"""What the kernel said of itself in a measurement's boot."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column; it is null for measurements that an older fsjoule has imported."""
    op.add_column("measurements", sa.Column("kernel_warnings", _TEXT))
