"""Faults injected into real benches on the virtual lab, and what must hold after each: see docs/faults.md.

`python -m faults` runs a campaign (`make test-faults`). `kinds` says what is injected and what is expected of it, `act`
does the harm, `watch` finds the moment, `scene` is where one fault happens (a lab, results and a cache of its own),
`checks` says what must hold afterwards, `one` brings a single fault from its start to its verdict.
"""
