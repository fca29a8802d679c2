"""The use case: measure a plan on a board, entry by entry.

For: provisioning filesystems, measuring, judging figures, and keeping each result as soon as it is known. The board,
the meter, the store and the clock are Protocols of `fsjoule.ports`, so all of this runs against fakes.
Called by: `runs`, `pytest_plugin`, `cli`.
May call: `meter`, `suites`, `store`, `filesystems`, `ports`, `model`. It knows no labgrid.

Entry points:

- `run.Bench`: boots the board when an entry needs it, measures, stores, tries once more after a fault of the lab.
- `measurer.Measurer`: one measurement on a booted board.
- `judge.judge`: a measurement's evidence becomes figures, and reasons not to believe them. Pure.
- `scratch.Scratch`, `storage.attach`: where the filesystem under test lives.
- `damage`: which files survive a power cut or a device that damages data (docs/safety.md).
- `crash/`: what becomes of each state that a power cut can leave behind (docs/crash.md).

`onboard/` holds the shell scripts that run on the board.
"""
