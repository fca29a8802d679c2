"""Run folders in an object store (S3 and what speaks its protocol).

::

    PREFIX/runs/<UTC time>-<board>-<id>/<measurements>-<complete|partial>-<SHA-256>.tar.zst

For: keeping runs where any computer of a lab can read them. A run is there as a whole or not at all: its archive is one
object, which appears when it is whole. It is named by its content, so a push never changes what is there, and pushes of
one run need not know of each other: a run that has grown has another archive, and the newest counts.
Called by: `verdicts`, `report`, `runs`, `cli`.
May call: `store`, `host`, `model`, `errors`. Only `bucket.py` knows obstore.

Entry points: `push.push_runs`, `pull.pull_runs`, `prune.prune`, and `cache.at_hand`, which gives any reader of run
folders a whole, verified copy of a run.
"""
