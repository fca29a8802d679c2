"""Disks of the emulated board: its card, loop devices, and disks whose cache does not survive a power cut."""
