"""Runs in the formats of other tools: `tables` (CSV), `perfetto`, `otlp` (OpenTelemetry) and `jls` (Joulescope).

One module each, with the package of its extra at its top, so that a command loads the one that it needs. All take
loaded runs and keep a word for what is not known; each says `simulated`, and where imported figures come from.
"""
