"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# No deadlines: these tests also run on busy machines, where a slow example is no finding.
settings.register_profile("fsjoule", deadline=None, print_blob=True)
settings.load_profile("fsjoule")
