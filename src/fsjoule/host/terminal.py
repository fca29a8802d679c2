"""The terminal, for text that others wrote: nothing in it is markup, an emoji code or a control sequence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fsjoule.host.plaintext import is_plain, plain


class PlainConsole(Console):
    """A rich Console that prints text as it stands. Styles are given apart, as `style` or as a rich Text.

    Control characters are replaced at the last moment, so that names of files cannot bring them either.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, file: IO[str] | None = None) -> None:
        super().__init__(stderr=stderr, width=width, file=file, markup=False, emoji=False)
        # Rich keeps the COLUMNS of this moment; they are asked again whenever something is printed.
        self._width = width

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's own, with every piece of text made plain."""
        for segment in super().render(renderable, options):
            if segment.control or is_plain(segment.text):
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
