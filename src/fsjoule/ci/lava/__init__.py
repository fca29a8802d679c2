"""LAVA: a labgrid place is a device, a suite is a job.

For: device files and jobs, the helpers that a device file names, and a bench's results as LAVA's signals. docs/lava.md
is the guide.
Called by: `cli`, `pytest_plugin`.
May call: `runs`, `lab`, `host` and below.

Entry points: `device.device_dictionary` and `device_template`; `job.suite_job` and `gate_job`; `helpers`, the programs
that a device file names; `guard.guard` and `power_off`, which end a job; `signals.signals_of`; `pull.pull`, which
brings a job's run from a server.
"""
