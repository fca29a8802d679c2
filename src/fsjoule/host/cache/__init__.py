"""The cache: entries are whole, or they are built again.

`stages.build_once` builds an entry beside its place and renames it, so nobody uses half an entry. Two builders of one
entry wait for each other (`locks.py`). `contents.py` records sizes and checksums, and each use compares them.
`programs.built` does the same for single programs that fsjoule compiles.
"""
