"""What a gate looks like to others: text, Markdown, JSON."""

from __future__ import annotations

from fsjoule.report.gating.as_json import to_document
from fsjoule.report.gating.markdown import to_markdown
from fsjoule.report.gating.model import Gated, GateSide, GateVerdict, Tested
from fsjoule.report.gating.text import print_gate

__all__ = ["GateSide", "GateVerdict", "Gated", "Tested", "print_gate", "to_document", "to_markdown"]
