"""Slices of pods that are gone, at the time when a node starts anew.

What an agent finds written of a pod that is gone it counts for ten seconds: the pod may have been deleted by force, and
its kubelet may yet be starting what it was let start. Here that kubelet has died with the agent, so nothing comes that
is not there, and whoever needs the room need not wait so long.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aliquot_core.names import Names
from aliquot_deviceplugin.cdi.folder import RealFolder
from aliquot_deviceplugin.cdi.store import SpecStore
from aliquot_standalone.kubelet.containers import marked_at
from aliquot_standalone.kubelet.groups import Groups


def forget_gone_slices(folder: Path, *, names: Names, place: str, groups: Groups | None, pods: Collection[str]) -> None:
    """Remove the specs of all but these pods (by UID) and those of which a process still lives.

    `place` is the node's mark on its processes, `groups` are its cgroups. To be called before its kubelet takes pods
    and its agent starts.
    """
    store = SpecStore(names=names, folder=RealFolder(folder))
    owners = {stored.owner.pod_uid for stored in store.listed() if stored.owner}
    gone = owners.difference(pods)
    left = {uid for uid in gone if marked_at(f"{place}.{uid}") or (groups and groups.has_process_of(uid))}
    store.collect(living_pods={*pods, *left})
