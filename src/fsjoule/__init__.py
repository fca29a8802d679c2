"""fsjoule: throughput and energy of filesystems on embedded boards, on labgrid."""

from importlib.metadata import version

__version__ = version("fsjoule")
