"""Real boards: the files that a new one needs, and what is wrong with them before anything runs.

For: `fsjoule board` and `fsjoule exporter`. The catalogue is the recipes in `images/boards`, whose environment and
exporter files (`env/boards`, `labgrid/boards`) are written by this room.
Called by: `cli`.
May call: `lab`, `meter`, `images`, `kernels`, `host`, `model`, `errors`.

Entry points: `files.board_files`, `checking.check_board`, `abilities.abilities_of`, `computer.check_computer`.
"""
