"""The meter's wire format: frames, commands, and the trace that they add up to."""
