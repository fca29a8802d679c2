"""The emulated board: QEMU, its supply, console, outlet and mark wire."""
