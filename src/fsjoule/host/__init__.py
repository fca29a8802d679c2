"""This computer: processes, paths, signals, terminals, files and caches.

For: everything that fsjoule needs from its machine, in one place each.
Called by: every room above it but `suites`.
May call: `errors`. It knows no board, no run and no measurement.

Entry points: `process.run` and `start` (the one door for programs), `inside.read_inside` (the one door into a run
folder), `interrupts` (signals that end a run, raised where a body may be left), `paths` (cache, state, checkout),
`output` and `terminal` (what may be shown), `messages` (the log's lines, as users see them). `cache/` keeps what is
built.
"""
