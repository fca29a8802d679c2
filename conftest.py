"""Settings for all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Tests that several test files inherit: their assertions should explain themselves as well.
pytest.register_assert_rewrite("index_import_contract", "index_opening_contract", "index_query_contract")

# No deadlines: these tests also run on busy machines, where a slow example is no finding.
settings.register_profile("fsjoule", deadline=None, print_blob=True)
settings.load_profile("fsjoule")
