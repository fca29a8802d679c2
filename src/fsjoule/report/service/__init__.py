"""A read-only web service over an index: start page, trends, runs, comparisons, the lab's places.

::

    request ── app ── pages ──> kept, or made anew by a worker:  asked ── start, trends, runs, comparisons, places
                │       └─ the index's state, a run folder's files: what a page depends on
                └─ answers over HTTP: ETag and 304, gzip, HTML or JSON, errors in the same look

For: `fsjoule serve`. It shows what `report` makes and decides nothing; what it adds are lists, addresses and HTTP.
Called by: `cli`, which hands over what only `runs` can do: look at a lab's places, explain a comparison (`Settings`).
May call: what `report` may call.

One process answers requests. Pages are made by worker processes, because charts take seconds of a processor, and
because a process can be ended when its time is over. Only `app.py` and `server.py` know FastAPI and
uvicorn (the extra `serve`). No text of a request becomes a path: files are those of the index's own run folders.

Entry points: `server.serving`; `app.application` for another server. docs/serve.md describes addresses and headers.
"""
