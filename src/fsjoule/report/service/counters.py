"""The service's own figures, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LIMITS_S: Final = (0.01, 0.05, 0.2, 1.0, 5.0, 20.0)


@dataclass
class Counters:
    """Requests by page and status, and the time until each answer began."""

    _requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    _within: Counter[float] = field(default_factory=Counter[float])
    _sum_s: float = 0.0

    def count(self, page: str, status: int, seconds: float) -> None:
        self._requests[page, status] += 1
        self._sum_s += seconds
        for limit_s in _LIMITS_S:
            self._within[limit_s] += seconds <= limit_s

    def text(self, *, up: bool, pages: Mapping[str, int], workers: Mapping[str, int], kept_bytes: int) -> str:
        """`pages` counts how pages were found, `workers` what became of worker processes."""
        total = sum(self._requests.values())
        lines = [
            *_head("index_up", "gauge", "1 if the index can be read."),
            f"fsjoule_serve_index_up {int(up)}",
            *_head("requests_total", "counter", "Requests by page and status."),
            *(
                f'fsjoule_serve_requests_total{{page="{page}",status="{status}"}} {count}'
                for (page, status), count in sorted(self._requests.items())
            ),
            *_head("request_seconds", "histogram", "Time until the answer."),
            *(
                f'fsjoule_serve_request_seconds_bucket{{le="{limit_s:g}"}} {self._within[limit_s]}'
                for limit_s in _LIMITS_S
            ),
            f'fsjoule_serve_request_seconds_bucket{{le="+Inf"}} {total}',
            f"fsjoule_serve_request_seconds_sum {self._sum_s:.6f}",
            f"fsjoule_serve_request_seconds_count {total}",
            *_head("pages_total", "counter", "Pages: known to the reader, kept here, or made."),
            *(f'fsjoule_serve_pages_total{{how="{how}"}} {pages.get(how, 0)}' for how in ("known", "kept", "made")),
            *_head("workers_total", "counter", "Worker processes that were started, or ended because of a time limit."),
            *(
                f'fsjoule_serve_workers_total{{what="{what}"}} {workers.get(what, 0)}'
                for what in ("started", "ended", "lost")
            ),
            *_head("kept_bytes", "gauge", "Size of the kept pages."),
            f"fsjoule_serve_kept_bytes {kept_bytes}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, told: str) -> tuple[str, str]:
    return f"# HELP fsjoule_serve_{name} {told}", f"# TYPE fsjoule_serve_{name} {kind}"
