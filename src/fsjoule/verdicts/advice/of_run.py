"""Advice that one run can give alone, for the profiles that come with fsjoule."""

from __future__ import annotations

from fsjoule.errors import ConfigError
from fsjoule.store.reader import LoadedRun
from fsjoule.suites.profile import profile_names, profile_of
from fsjoule.verdicts.advice.advise import Advice, advise
from fsjoule.verdicts.advice.evidence import evidence_of
from fsjoule.verdicts.advice.parts import parts_of

_LEAST = 2


def advice_of(loaded: LoadedRun) -> tuple[Advice, ...]:
    """The profiles of which the run has every part of a day for at least two filesystems.

    Empty for a run of several kernels, storage devices or meters: the reader has to choose one.
    """
    measured = {m.workload.slug for m in loaded.measurements if m.valid}
    profiles = [profile_of(name) for name in profile_names()]
    enough = [(name, one) for name, one in profiles if {part.slug for part in parts_of(one)} <= measured]
    if not enough:
        return ()
    try:
        evidence = evidence_of([loaded])
    except ConfigError:
        return ()
    told = [advise(evidence, name, one) for name, one in enough]
    return tuple(one for one in told if sum(bool(figures.shares) for figures in one.figures) >= _LEAST)
