"""Finds a kernel of the history where kernels are kept, or builds it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fsjoule import kernels
from fsjoule.errors import FsjouleError, ResultError
from fsjoule.model import KernelFacts
from fsjoule.model.kernel import Kernel, is_kernel
from fsjoule.store.index.newestrows import RunNames
from fsjoule.store.reader import load_run_file

_HINT: Final = "give the kernel's repository with --tree, or measure both kernels with: fsjoule gate"


class Kernels:
    """Finds each kernel once. `tree` is a repository from which built kernels can be built again."""

    def __init__(self, recipe: str, tree: Path | None, say: Callable[[str], None]) -> None:
        self._recipe = recipe
        self._tree = tree
        self._say = say
        self._found: dict[Kernel, str] = {}

    def find(self, kernel: Kernel, run: RunNames) -> str:
        """The value for --kernel that gives exactly this kernel. Raises ResultError, which says what was tried."""
        if kernel not in self._found:
            tried: list[str] = []
            for asked in self._candidates(kernel, run, tried):
                if (difference := self._differs(kernel, asked)) is None:
                    self._found[kernel] = asked
                    break
                tried.append(difference)
            else:
                why = "; ".join(dict.fromkeys(tried)) or "its origin is unknown"
                raise ResultError(f"kernel {kernel.label} was not found again: {why}", hint=_HINT)
        return self._found[kernel]

    def _candidates(self, kernel: Kernel, run: RunNames, tried: list[str]) -> Iterator[str]:
        facts = self._facts(kernel, run, tried)
        if facts is not None:
            yield facts.asked
        yield from (name for name in kernels.kernel_choices(self._recipe) if facts is None)
        describe = facts.git_describe if facts else kernel.version.partition(" ")[0]
        yield from (str(entry.path) for entry, notes in kernels.built_kernels() if notes.git_describe == describe)
        if describe and self._tree is not None:
            try:
                yield str(kernels.build_kernel(self._tree, describe, progress=self._say, recipe=self._recipe))
            except FsjouleError as error:
                tried.append(error.what.splitlines()[0])

    def _facts(self, kernel: Kernel, run: RunNames, tried: list[str]) -> KernelFacts | None:
        """The run's facts of the kernel, if the run folder is on this machine."""
        try:
            known = load_run_file(Path(run.path)).kernels
        except ResultError:
            tried.append(f"its run folder {run.path} is not here")
            return None
        return next((facts for facts in known if is_kernel(kernel, facts)), None)

    def _differs(self, kernel: Kernel, asked: str) -> str | None:
        """Why `asked` is not this kernel; None if it is."""
        try:
            (taken,) = kernels.take_kernels((asked,), progress=self._say, recipe=self._recipe)
        except FsjouleError as error:
            return error.what.splitlines()[0]
        if is_kernel(kernel, taken.facts):
            return None
        return f"{asked} is {taken.facts.package or taken.facts.release} now"
