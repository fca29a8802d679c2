"""The board's lab: labgrid drivers and a strategy. Only the modules of this room import labgrid.

For: a real or virtual board behind `fsjoule.ports`. An environment file with `imports: [fsjoule.lab]` registers
MeterDriver, Ppk2Driver, InstrumentDriver, BoardCounterDriver, MarkLineDriver, SdMuxFlasher, UmsFlasher,
FastbootFlasher, TftpFlasher, InPlaceFlasher, KeptCard, SshServer and BoardStrategy.
Called by: `ci`, `runs`, `cli`, `pytest_plugin`.
May call: `meter`, `kernels`, `ports`, `host`, `model`, `errors`.

Entry points:

- `LabgridBoard`, `MeterDriver`: ports.Board and ports.Meter on a labgrid target; `SdMuxFlasher`, `UmsFlasher` write
  its card.
- `acquired_place`: holds a place. Its lock gives the right to use a board, and is checked before each use.
- `read_environment`: an environment file with every argument checked; errors name file and line.
- `lab_errors`: labgrid's exceptions become fsjoule's, and calls that may hang get a time limit.

`boards/` writes and checks the files of real boards. Nothing else in this room imports it.
"""

from fsjoule.lab.board import LabgridBoard
from fsjoule.lab.board_counter import BoardCounterDriver
from fsjoule.lab.environment import EnvironmentFile, let_labgrid_run, missing_drivers, read_environment
from fsjoule.lab.facts import board_facts, lab_facts, recorded_steps
from fsjoule.lab.fastboot import FastbootFlasher
from fsjoule.lab.flashers import FlasherProtocol, KeptCard, SdMuxFlasher
from fsjoule.lab.in_place import InPlaceFlasher
from fsjoule.lab.instruments import InstrumentDriver, MarkLineDriver, Ppk2Driver
from fsjoule.lab.lease import Guard, acquired_place, acquired_places, note_end, release_left
from fsjoule.lab.loader_help import loader_help
from fsjoule.lab.meterdriver import MeterDriver, board_counter, board_meter, has_meter, instrument, meter
from fsjoule.lab.placenames import find_places, is_name, place_variables
from fsjoule.lab.reservation import RESERVED, PlaceRequest, place_request
from fsjoule.lab.shell import LabgridShell
from fsjoule.lab.ssh import SshServer, SshShell
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.target import (
    PROCESS_FOLDER,
    ask_with,
    check_places,
    guard,
    labgrid_target,
    read_again,
    remove_left_connections,
    target_beside_others,
    variables,
    wants_virtual_lab,
)
from fsjoule.lab.tftp import TftpFlasher
from fsjoule.lab.translate import is_lab_fault, lab_errors, raised_by_labgrid, raised_by_us
from fsjoule.lab.ums import UmsFlasher

__all__ = [
    "PROCESS_FOLDER",
    "RESERVED",
    "BoardCounterDriver",
    "BoardStrategy",
    "EnvironmentFile",
    "FastbootFlasher",
    "FlasherProtocol",
    "Guard",
    "InPlaceFlasher",
    "InstrumentDriver",
    "KeptCard",
    "LabgridBoard",
    "LabgridShell",
    "MarkLineDriver",
    "MeterDriver",
    "PlaceRequest",
    "Ppk2Driver",
    "SdMuxFlasher",
    "SshServer",
    "SshShell",
    "TftpFlasher",
    "UmsFlasher",
    "acquired_place",
    "acquired_places",
    "ask_with",
    "board_counter",
    "board_facts",
    "board_meter",
    "check_places",
    "find_places",
    "guard",
    "has_meter",
    "instrument",
    "is_lab_fault",
    "is_name",
    "lab_errors",
    "lab_facts",
    "labgrid_target",
    "let_labgrid_run",
    "loader_help",
    "meter",
    "missing_drivers",
    "note_end",
    "place_request",
    "place_variables",
    "raised_by_labgrid",
    "raised_by_us",
    "read_again",
    "read_environment",
    "recorded_steps",
    "release_left",
    "remove_left_connections",
    "target_beside_others",
    "variables",
    "wants_virtual_lab",
]
