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
from fsjoule.lab.place import Guard, acquired_place, acquired_places
from fsjoule.lab.placenames import RESERVED, find_places, place_variables
from fsjoule.lab.shell import LabgridShell
from fsjoule.lab.steps import recorded_steps
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.target import (
    check_places,
    guard,
    kept_variables,
    labgrid_target,
    wants_virtual_lab,
)
from fsjoule.lab.translate import is_lab_fault, lab_errors, raised_by_labgrid, raised_by_us

__all__ = [
    "RESERVED",
    "BoardStrategy",
    "EnvironmentFile",
    "FlasherProtocol",
    "Guard",
    "LabgridBoard",
    "LabgridShell",
    "MeterDriver",
    "SdMuxFlasher",
    "acquired_place",
    "acquired_places",
    "board_facts",
    "board_meter",
    "check_places",
    "find_places",
    "guard",
    "is_lab_fault",
    "kept_variables",
    "lab_errors",
    "lab_facts",
    "labgrid_target",
    "meter",
    "place_variables",
    "raised_by_labgrid",
    "raised_by_us",
    "read_environment",
    "recorded_steps",
    "wants_virtual_lab",
]
