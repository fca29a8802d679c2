"""The facts that the readings of a supply or source meter that speaks SCPI come with."""

from __future__ import annotations

from typing import Final

SCPI: Final = "scpi"
# The limits of error that the instrument's data sheet states, each +-.
VOLTS_SHARE: Final = "volts_share"
VOLTS_OFFSET: Final = "volts_offset"
AMPERES_SHARE: Final = "amperes_share"
AMPERES_OFFSET: Final = "amperes_offset"
