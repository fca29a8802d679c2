"""fsjoule: throughput and energy of filesystems on embedded boards, on labgrid.

The rooms and who may call whom are listed in docs/architecture.md.
"""
