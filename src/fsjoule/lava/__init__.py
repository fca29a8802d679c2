"""LAVA: a labgrid place is a device, a suite is a job.

For: device files and jobs, the helpers that a device file names, and a bench's results as LAVA's signals. docs/lava.md
is the guide.
Called by: `cli`, `pytest_plugin`.
May call: `runs`, `lab`, `host` and below.

Entry points: `device.device_dictionary` and `device_template`; `job.suite_job`; `helpers` (connect, power, flash) and
`bench_shell.open_shell`, a job's shell on the worker; `signals.signals_of`.
"""
