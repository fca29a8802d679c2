"""The cache: entries that are whole or built again.

`stages.build_once` builds an entry beside its place and renames it, so half an entry is never used; two builders of one
entry wait for each other (`locks.py`). `contents.py` records sizes and checksums, which each use compares.
`programs.built` does the same for single programs that fsjoule compiles.
"""
