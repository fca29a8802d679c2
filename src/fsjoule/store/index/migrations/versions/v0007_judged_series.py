"""What the last trend found in each series."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_DIGEST: Final = sa.LargeBinary(16)


def upgrade() -> None:
    """Add the table; the next trend judges every series."""
    op.create_table(
        "judged_series",
        sa.Column("series", sa.Integer, sa.ForeignKey("series.id", name="judged_series_series"), nullable=False),
        sa.Column("question", _DIGEST, nullable=False),
        sa.Column("made_from", _DIGEST, nullable=False),
        sa.Column("judged_utc", _TEXT, nullable=False),
        sa.Column("histories", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("series", "question", name="judged_series_pkey"),
    )
