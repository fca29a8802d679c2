"""figures.py RESULTS: a line for each measurement of the runs in a folder, their number, and a digest of their figures.

Two machines measured the same if the digests are equal, which is so in guest time with one seed, one QEMU and one card.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

measured = [
    json.loads(file.read_bytes()) for file in sorted(Path(sys.argv[1]).glob("*/measurements/*/measurement.json"))
]
lines = [
    "{number} {slug} {window_s} s {throughput_mib_per_s} MiB/s".format_map(each)
    + (f" {each['energy']['gross_mj']['value']} mJ" if each["energy"] else " no energy")
    for each in measured
]
valid = sum(not each["invalid_reasons"] for each in measured)
digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
sys.stdout.write("\n".join([*lines, f"{valid} of {len(measured)} valid, figures {digest}\n"]))
sys.exit(0 if measured and valid == len(measured) else 1)
