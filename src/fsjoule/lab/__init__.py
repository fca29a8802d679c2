"""The board's lab: labgrid drivers and a strategy, and nothing else of fsjoule imports labgrid.

An environment file has `imports: [fsjoule.lab]`, which registers MeterDriver, SdMuxFlasher and BoardStrategy.
"""

from fsjoule.lab.board import LabgridBoard
from fsjoule.lab.environment import EnvironmentFile, read_environment
from fsjoule.lab.facts import board_facts
from fsjoule.lab.flashers import FlasherProtocol, SdMuxFlasher
from fsjoule.lab.guestmeter import board_meter
from fsjoule.lab.labfacts import lab_facts
from fsjoule.lab.meterdriver import MeterDriver, meter
from fsjoule.lab.place import acquired_place
from fsjoule.lab.shell import LabgridShell
from fsjoule.lab.steps import recorded_steps
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.target import labgrid_target

__all__ = [
    "BoardStrategy",
    "EnvironmentFile",
    "FlasherProtocol",
    "LabgridBoard",
    "LabgridShell",
    "MeterDriver",
    "SdMuxFlasher",
    "acquired_place",
    "board_facts",
    "board_meter",
    "lab_facts",
    "labgrid_target",
    "meter",
    "read_environment",
    "recorded_steps",
]
