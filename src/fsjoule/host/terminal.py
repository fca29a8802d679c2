"""The terminal, safe for text from others: no markup, no emoji codes, no control sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fsjoule.host.plaintext import is_plain, plain


class PlainConsole(Console):
    """A rich Console that prints text unchanged. Styles are passed separately, as `style` or as a rich Text.

    Control characters are replaced last, so that file names cannot contain any either.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, file: IO[str] | None = None) -> None:
        super().__init__(stderr=stderr, width=width, file=file, markup=False, emoji=False)
        # Otherwise rich keeps the present COLUMNS for ever.
        self._width = width

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or is_plain(segment.text):
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
