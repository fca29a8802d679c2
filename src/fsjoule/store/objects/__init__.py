"""Run folders in an object store (S3 and what speaks its protocol).

::

    PREFIX/runs/<UTC time>-<board>-<id>.json    a run's manifest: its files, and where each of them is
    PREFIX/objects/<2 digits>/<SHA-256>         a large file, or the small files of a push one after another
    PREFIX/pushes/<run>-<random>.json           the objects that a push relies on
    PREFIX/prune.json                           who removes objects, or has last

For: keeping runs where any computer of a lab can read them. A run is there as a whole or not at all: its manifest is
written last. Objects are named by their content, so equal files are kept once, and none is ever changed.
Called by: `verdicts`, `report`, `runs`, `cli`.
May call: `store`, `host`, `model`, `errors`. Only `bucket.py` and `access.py` know obstore.

Entry points: `push.push_runs`, `pull.pull_runs`, `prune.prune`, and `cache.at_hand`, which gives any reader of run
folders a whole, verified copy of a run.
"""
