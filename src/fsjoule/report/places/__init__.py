"""A lab's places for people and machines: terminal, page, JSON, OpenMetrics.

Called by: `cli`. It takes a `model.places.Lab` and decides nothing.
"""
