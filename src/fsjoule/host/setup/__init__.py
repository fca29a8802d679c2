"""What this computer needs beside Python's packages, and how it gets it.

For: `fsjoule setup`, the set-up of a clone (`.ci/set-up`), and the package that an error names for a missing program.
Called by: `host.process`, `kernels`, `lab`, `cli`, and the Makefile by `python3 -m fsjoule.host.setup`.
May call: `errors` and those modules of `host` that need Python's standard library alone: nothing else is there yet.

Entry points: `needs.needed` (the rows of packages.toml), `check.checked` (what is there), `install.set_up`.
"""
