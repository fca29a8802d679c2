"""Five published suites, their figures and statements, and the forms in which a report shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsjoule.hooks import hook

if TYPE_CHECKING:
    from fsjoule.suites.published.publication import Publication
    from fsjoule.suites.suite import Suite


@hook
def fsjoule_suites() -> list[Suite]:
    from fsjoule.plugins.publications import copy2015, elc2015, energy_emmc, ext4_zfs, home_usage

    return [copy2015.SUITE, elc2015.SUITE, energy_emmc.SUITE, energy_emmc.EXTENDED, ext4_zfs.SUITE, home_usage.SUITE]


@hook
def fsjoule_publications() -> list[Publication]:
    from fsjoule.plugins.publications import copy2015, elc2015, energy_emmc, ext4_zfs, home_usage

    return [each.PUBLICATION for each in (copy2015, elc2015, energy_emmc, ext4_zfs, home_usage)]
