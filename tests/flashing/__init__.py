"""Flashes in a row, half of them with a fault at a random moment: `make test-flashing` (docs/flashing.md)."""
