"""The meter's host side: its stream and commands, and what one does with them at a desk. It knows no labgrid."""
