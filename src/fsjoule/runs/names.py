"""What `-k` chooses: the measurements whose names match, in pytest's own syntax, whichever command it is given to."""

from __future__ import annotations

from collections.abc import Callable

from _pytest.mark.expression import Expression

from fsjoule.errors import ConfigError


def matching(select: str | None) -> Callable[[str], bool]:
    """Whether a name matches `ext4 and not (rand or mkfs)`: its words are parts of names. Without one all names do.

    Raises ConfigError for a wrong expression.
    """
    if not select:
        return lambda _name: True
    try:
        expression = Expression.compile(select)
    except SyntaxError as error:
        hint = "words with and, or, not and parentheses: -k 'ext4 and not rand'"
        raise ConfigError(f"-k {select!r}: {error.msg}", hint=hint) from error

    def matches(name: str) -> bool:
        def is_part(word: str, /, **_more: object) -> bool:
            return word.lower() in name.lower()

        return expression.evaluate(is_part)

    return matches
