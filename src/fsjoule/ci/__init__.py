"""fsjoule's part in the CI systems of others: GitLab, LAVA, KernelCI.

For: what a system asks of a bench, and what it is told of a bench's results.
Called by: `cli`, `pytest_plugin`.
May call: `runs`, `lab`, `report`, `verdicts`, `store`, `images`, `kernels`, `suites`, `host` and below.

Rooms, none of which imports another: `gitlab/` (jobs of a pipeline), `lava/` (a place as a device, a suite as a job),
`kernelci/` (a lab that polls for jobs).
"""
