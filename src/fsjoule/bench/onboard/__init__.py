"""Shell scripts that run on the board."""
