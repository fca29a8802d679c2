"""Run folders on disk: the only part of fsjoule that touches files of results.

::

    results/<UTC time>-<board>-<id>/
        run.json                        fsjoule.run/4
        measurements/<nn>-<slug>/
            measurement.json            fsjoule.measurement/4
            trace.parquet               fsjoule.trace/2
            fio.json, console.log       attachments, under the names that the caller gave

`RunFolder` writes one, `load_run` reads one. `Recording` writes a trace that belongs to no run.
"""
