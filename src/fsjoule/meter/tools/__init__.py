"""Tools for a meter at a desk: watch, record, calibrate, test, and measure a command.

Called by `cli`. Each tool takes an open meter (`links`) and does not know how it was found.
"""
