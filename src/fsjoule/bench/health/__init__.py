"""Is this place fit to measure? Its parts are checked one after the other, in the order in which they need each other.

For: `fsjoule doctor`. A check uses a board, its parts and its meter through `fsjoule.ports`, and returns a verdict,
what was seen in figures, and what to do.
Called by: `runs`, `cli`.
May call: what `bench` may call.

Entry points:

- `checkup.Checkup`: all checks of one place.
- `result.Check`, `result.Health`: what a check found.

`board` and `meter` have the checks: for each a function that looks, and a pure one that judges.
"""
