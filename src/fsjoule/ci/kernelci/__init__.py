"""KernelCI: a lab that polls KernelCI for jobs (PULL_LABS) and measures their kernels.

For: the jobs of a lab and a platform, their kernels' files, a bench for each, and its figures in KCIDB. docs/lava.md
has the guide.
Called by: `cli`.
May call: `runs`, `lab`, `report`, `store`, `kernels`, `suites`, `host` and below.

Entry points: `api.Api` (KernelCI's events and nodes), `api.Kcidb` (where figures go), `poll.Poller` (one job after
the other).
"""
