"""The configuration of a bisection: frozen when it begins, so that no commit differs by a default that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from fsjoule.kernels.build import configured
from fsjoule.kernels.configuration import Configuration, not_granted
from fsjoule.kernels.source_tree import Revision

_ALIGNED: Final = ("CONFIG_DEBUG_FORCE_FUNCTION_ALIGN_64B=y", "CONFIG_DEBUG_FORCE_FUNCTION_ALIGN_32B=y")
_ALIGNED_BY_COMPILER: Final = "-falign-functions=64"


@dataclass(frozen=True, slots=True)
class Frozen:
    """`needed` are the settings that all ends accept. A commit that does not accept one of them is not comparable."""

    configuration: Configuration
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """A configuration with which all functions begin at multiples of 64 bytes (of 32, before 5.15). `how` says why."""

    frozen: Frozen
    how: str


def freeze(ends: Sequence[Revision], configuration: Configuration, *, jobs: int = 1) -> Frozen:
    """The configuration of the ends, as one text: the first end's, and the symbols that only later ends know.

    So a symbol that is new at a later end has the value there that it would have had. Raises KernelBuildError for an
    end that cannot be configured.
    """
    configs = [configured(end, configuration, jobs=jobs) for end in ends]
    values = reduce(lambda known, config: {**config, **known}, configs)
    lost = {wish for config in configs for wish in not_granted(configuration.wanted, config)}
    wishes = (f"{symbol}={value}" for symbol, value in configuration.wanted.items())
    # As kconfig writes it.
    text = "".join(
        f"# {symbol} is not set\n" if value == "n" else f"{symbol}={value}\n" for symbol, value in values.items()
    )
    return Frozen(replace(configuration, frozen=text), tuple(sorted(set(wishes) - lost)))


def aligned(frozen: Frozen, end: Revision, *, jobs: int = 1) -> Alignment:
    """The same configuration with aligned functions: by the kernel's own option if the end accepts it.

    Kernels before 5.9 have no such option, and those of some architectures (32-bit ARM) have none to this day: there
    the compiler is told, which is what the option does.
    """
    for wish in _ALIGNED:
        line = f"{wish}\nCONFIG_DEBUG_KERNEL=y\nCONFIG_EXPERT=y\n"
        wanted = replace(frozen.configuration, fragments=(*frozen.configuration.fragments, line))
        symbol, _, value = wish.partition("=")
        if not not_granted({symbol: value}, configured(end, wanted, jobs=jobs)):
            return Alignment(Frozen(wanted, frozen.needed), wish)
    told = replace(frozen.configuration, compiler_options=(_ALIGNED_BY_COMPILER,))
    return Alignment(Frozen(told, frozen.needed), f"{_ALIGNED_BY_COMPILER}, for this kernel has no option of its own")
