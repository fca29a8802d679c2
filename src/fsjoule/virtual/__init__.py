"""The virtual lab: an emulated board under real labgrid processes.

For: everything that is hardware in a real lab. It differs from a real lab only below labgrid's drivers, and all its
figures say `simulated`.
Called by: `runs`, `cli`.
May call: `images`, `meter`, `host`, `model`, `errors`. It imports neither `lab` nor labgrid: the
services run as programs.

Rooms: `board/` (QEMU, power model, supply, console, outlet), `disks/` (card and disks), `lab/` (the lab's programs).
Entry points: `lab.lab.up`, `status`, `down`, `environment`; `lab.health.PlaceFaults`, the first cause of a failure.
"""
