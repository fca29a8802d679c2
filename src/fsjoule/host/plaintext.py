"""Text from outside, made safe to show: one rule for everything that a terminal would obey or XML forbids.

Text of run folders is made plain where it is parsed (`store/documents.py`). File names and the content of an older
index do not pass there, so the terminal (`terminal.py`) and the charts (`report/svg.py`) apply the rule again.
"""

from __future__ import annotations

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# Control characters except tab and new line, marks and overrides of the writing direction, line separators of Unicode,
# lone surrogates, invisible characters and noncharacters.
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u3164\uffa0\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufdd0-\ufdef\ufeff"
    "\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_BREAKS: Final = re.compile(r"[\t\n]")


def is_plain(text: str) -> bool:
    """Whether `plain` would not change the text."""
    return _UNFIT.search(text) is None


def plain(text: str) -> str:
    """The text with a replacement character for each unsafe character. Tabs and new lines stay."""
    return _UNFIT.sub(REPLACEMENT, text)


def plain_line(text: str) -> str:
    """Like `plain`, on one line: for file names."""
    return _BREAKS.sub(REPLACEMENT, plain(text))
