"""Run folders on disk: the only room that touches files of results.

::

    results/<UTC time>-<board>-<id>/
        run.json                        fsjoule.run/1
        measurements/<nn>-<slug>/
            measurement.json            fsjoule.measurement/1
            trace.parquet               fsjoule.trace/1
            fio.json, console.log       attachments, under the caller's names
            SHA256SUMS                  of the files beside it

For: writing results whole or not at all, and reading them from damaged and foreign folders too.
Called by: `bench`, `runs`, `verdicts`, `report`, `meter` (recordings), `ci`, `cli`.
May call: `host`, `model`, `errors`.

Entry points: `folder.RunFolder` writes a run, `reader.load_run` reads one, damaged or not. `recordings.Recording`
writes a trace that belongs to no run. `schemas.py` has the JSON models and their schemas. `gate.py`, `bisection.py` and
`confirmations.py` have the documents of verdicts. `index/` makes the database of all runs. `objects/` keeps runs in an
object store.
"""
