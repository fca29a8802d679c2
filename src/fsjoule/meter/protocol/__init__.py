"""The meter's wire format: frames, commands, and the trace that frames make up. Pure.

docs/meter-protocol.md describes it byte by byte. `frames.py` reads and `commands.py`
writes; `trace_builder.TraceBuilder` turns frames into a Trace.
"""
