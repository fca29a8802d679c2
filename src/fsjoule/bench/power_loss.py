"""One loss of power: files are written and synced until the cut, and looked for after the next boot."""

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
    """One iteration. Its seed decides the moment of the cut, the files, and a disk's losses from its cache."""

    entry: Planned
    workload: PowerLossWorkload
    seed: int

    @classmethod
    def of(cls, entry: Planned, workload: PowerLossWorkload, plan_seed: int) -> PowerLoss:
        """The iteration of a plan's entry. A plan always has the same iterations; each has its own seed."""
        name = f"{plan_seed} {entry.repetition} {entry.kernel} {entry.slug}"
        return cls(entry, workload, random.Random(name).getrandbits(_SEED_BITS))  # noqa: S311 - recorded, not a secret

    @property
    def cut_after_s(self) -> float:
        """Seconds from the writer's start to the cut."""
        moment = random.Random(self.seed)  # noqa: S311 - recorded, not a secret
        return moment.uniform(self.workload.earliest_s, self.workload.latest_s)

    @property
    def kind(self) -> Filesystem:
        """The filesystem, with the workload's mount options."""
        plain = filesystem(self.entry.filesystem)
        options = (*plain.mount_options, "sync") if self.workload.sync else plain.mount_options
        return dataclasses.replace(plain, mount_options=options)

    def begin(self, measurer: Measurer) -> None:
        """Make and mount the filesystem, and leave the writer running. Raises LabError, MeasurementInvalid."""
        kind = self.kind
        with measurer.phases("provisioning"):
            # Times tell an old ext4 journal on the disk from the new one. A board without a clock starts every boot at
            # the same time; then ext4 takes the old journal for its own, damaged, and cannot be mounted.
            now = measurer.clock.utc()[: len("2026-01-01T00:00:00")]
            checked(measurer.shell, "date", "-u", "-s", now.replace("T", " "))
            measurer.load_modules(*kind.modules)
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)
            pool = onboard_safety.pool_argv(self.seed, onboard_safety.writer_pool_bytes(self.workload))
            checked(measurer.shell, *pool, timeout_s=_POOL_TIMEOUT_S)
            measurer.scratch.make(kind)
            directory = measurer.scratch.mount(kind)
            # mkfs's writes must be on the device: only files may be lost.
            checked(measurer.shell, "sync")
        measurer.shell.start(onboard_safety.writer_argv(self.workload, directory, self.seed))

    def recover(self, measurer: Measurer, cut: Cut) -> Evidence:
        """Look, after the next boot, for the files that the board had acknowledged on its console."""
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
