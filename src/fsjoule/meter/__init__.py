"""The host side of the power meter. It does not know labgrid.

For: the meter's stream and commands, joules and their uncertainty, and work with a meter at a desk.
Called by: `bench`, `lab`, `virtual`, `runs`, `cli`.
May call: `host`, `model`, `errors`.

Rooms: `protocol/` (bytes to frames to a trace, pure), `links/` (ports, the receiving thread, commands), `energy/`
(joules, their uncertainty, their validity, pure), `tools/` (watch, record, calibrate, self-test).
Entry points: `links.receiver.Receiver`, `links.client.MeterClient`, `links.finder.find`, `energy.energy`.
"""
