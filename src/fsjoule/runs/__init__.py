"""One run, put together from the other rooms.

For: everything between a user's request and a finished run folder or verdict. This is the only room that knows the lab,
the images and the bench at once.
Called by: `cli`, `pytest_plugin`, `ci`.
May call: every room below it.

Entry points:

- `request.choose`: options with every name checked become a `Request`.
- `plan.plan_run`: a request on its board becomes a `RunPlan`: what will be done.
- `open_run.make_ready`, `open_run.open_run`: cards are made, the virtual lab comes up, the place is held and the run
  folder opened. The `OpenRun` has the bench.
- `resume.resume`: a run that ended early goes on in its own folder.
- `pairs.measure_pairs`: a baseline and a candidate boot in turn until the caller has seen enough.
- `parallel`: boards in guest time that boot at once, for such pairs.
- `advise.benches`, `advise.measure`: what a usage profile lacks on a board, its cost, and the benches for it.
- `gate.gate_measured`, `gate.gate_recorded`: the gate on fresh boots and on recorded ones.
- `confirm.confirm_changes`: fresh boots confirm or refute the changes that a trend nominates.
- `meter.open_meter`: the one meter that an address, a virtual lab or an environment file names.
"""
