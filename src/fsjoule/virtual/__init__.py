"""The virtual lab: a board in QEMU, its meter, and the programs of a labgrid lab around them."""
