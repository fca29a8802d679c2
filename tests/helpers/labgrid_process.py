"""What labgrid keeps for a whole process."""

from __future__ import annotations

from typing import Any

from labgrid.resource.common import ResourceManager
from labgrid.resource.remote import RemotePlaceManager
from labgrid.util.ssh import sshmanager


def forget_coordinator() -> None:
    """End this process's connections through labgrid while the lab is up: the next test may use another lab."""
    sshmanager.close_all()
    manager: Any = ResourceManager.instances.pop(RemotePlaceManager, None)
    if manager is not None and manager.session is not None:
        session = manager.session
        session.loop.run_until_complete(session.stop())
        session.loop.run_until_complete(session.close())
