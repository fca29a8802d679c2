"""Real boards: the files that a new one needs, and what is wrong with them before anything runs.

For: `fsjoule board` and `fsjoule exporter`. The catalogue is the recipes in `images/boards`, whose environment and
exporter files (`env/boards`, `labgrid/boards`) are written by this room.
Called by: `cli`.
May call: the rest of `lab`, `meter`, `kernels`, `model`, `errors`. It does not import labgrid itself.

Entry points: `files.board_files`, `checking.check_board`, `abilities.abilities_of`, `computer.check_computer`.
"""
