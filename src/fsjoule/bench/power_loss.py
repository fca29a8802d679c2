"""One loss of power: files are written and synced until it comes, and looked for after the next boot."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.judge import Evidence
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.onboard import survival as onboard_safety
from fsjoule.bench.scratch import checked
from fsjoule.bench.survivors import Survey
from fsjoule.filesystems import filesystem
from fsjoule.model import Planned, PowerLossWorkload
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Cut

_SEED_BITS: Final = 31
_POOL_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """One iteration. Its seed gives the moment of the cut, the files, and what a disk loses of its cache."""

    entry: Planned
    workload: PowerLossWorkload
    seed: int

    @classmethod
    def of(cls, entry: Planned, workload: PowerLossWorkload, plan_seed: int) -> PowerLoss:
        """The iteration of a plan's entry. The same plan has the same iterations, each another seed."""
        name = f"{plan_seed} {entry.repetition} {entry.kernel} {entry.slug}"
        return cls(entry, workload, random.Random(name).getrandbits(_SEED_BITS))  # noqa: S311 - recorded, not a secret

    @property
    def cut_after_s(self) -> float:
        """How long after the writer was started the power is cut."""
        moment = random.Random(self.seed)  # noqa: S311 - recorded, not a secret
        return moment.uniform(self.workload.earliest_s, self.workload.latest_s)

    @property
    def kind(self) -> Filesystem:
        """The filesystem, mounted as the workload says."""
        plain = filesystem(self.entry.filesystem)
        options = (*plain.mount_options, "sync") if self.workload.sync else plain.mount_options
        return dataclasses.replace(plain, mount_options=options)

    def begin(self, measurer: Measurer) -> None:
        """Make and mount the filesystem, and leave the writer running on it.

        Raises LabError when the board does not answer, MeasurementInvalid if the filesystem cannot be made or mounted.
        """
        kind = self.kind
        with measurer.phases("provisioning"):
            # A journal that an earlier ext4 left on the disk is known by its times. A board without a clock of its own
            # begins every boot at the same one: ext4 takes what is old for its own, damaged, and cannot be mounted.
            now = measurer.clock.utc()[: len("2026-01-01T00:00:00")]
            checked(measurer.shell, "date", "-u", "-s", now.replace("T", " "))
            measurer.load_modules(*kind.modules)
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)
            pool = onboard_safety.pool_argv(self.seed, onboard_safety.writer_pool_bytes(self.workload))
            checked(measurer.shell, *pool, timeout_s=_POOL_TIMEOUT_S)
            measurer.scratch.make(kind)
            directory = measurer.scratch.mount(kind)
            # What mkfs has written is to be on the device: the loss begins with the first file.
            checked(measurer.shell, "sync")
        measurer.shell.start(onboard_safety.writer_argv(self.workload, directory, self.seed))

    def recover(self, measurer: Measurer, cut: Cut) -> Evidence:
        """Look, on the board that was booted again, for the files that it has acknowledged on its console before."""
        promised = onboard_safety.promised(cut.console)
        with measurer.phases("provisioning"):
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)

        def look(_kind: Filesystem) -> Evidence:
            return Survey(measurer, self.kind, promised).run(self.entry.number)

        evidence = measurer.around(self.entry, look)
        if evidence.outcome is not None:
            evidence.outcome = dataclasses.replace(evidence.outcome, cut_s=self.cut_after_s, seed=self.seed)
        evidence.notes += cut.losses
        if ended := onboard_safety.stopped(cut.console):
            evidence.complaints.append(f"the files were not written until the power was cut: {ended}")
        return evidence
