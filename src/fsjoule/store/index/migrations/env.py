"""Alembic runs this for each upgrade, on the connection and in the transaction that `upgrade.py` opened."""

from __future__ import annotations

from alembic import context

from fsjoule.store.index.schema import metadata
from fsjoule.store.index.upgrade import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite can change few things of a table in place
    transactional_ddl=True,  # on SQLite too, because we begin transactions
)
with context.begin_transaction():
    context.run_migrations()
