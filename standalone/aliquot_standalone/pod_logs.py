"""What pods of this machine have printed, for the API server: the small kubelets' files, by the pod's own word."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.objects import Pod
from aliquot_standalone.apiserver.catalogue import PODS
from aliquot_standalone.apiserver.log_files import LogFiles
from aliquot_standalone.apiserver.logs import LogWish
from aliquot_standalone.apiserver.store import Store
from aliquot_standalone.home import Home
from aliquot_standalone.kubelet.settings import Folders


def pod_logs(*, store: Store, home: Home, clock: Clock) -> LogFiles:
    """Give the files of all nodes that are on the full path."""
    return LogFiles(
        folder_of=partial(_folder, home), ended=partial(_ended, store), clock=clock, waits=partial(_waits, store)
    )


def _folder(home: Home, node: str) -> Path | None:
    folder = Folders(root=home.node(node)).logs
    return folder if folder.is_dir() else None


def _ended(store: Store, wish: LogWish) -> bool:
    """Whether the container prints nothing more: it has ended, or its pod has or is gone."""
    found = store.get(PODS.table, f"{wish.namespace}/{wish.pod}")
    if found is None:
        return True
    pod = msgspec.json.decode(found.raw, type=Pod)
    if pod.metadata.uid != wish.uid or pod.ended:
        return True
    statuses = [one for one in pod.status.container_statuses if one.name == wish.container]
    return any("terminated" in one.state for one in statuses)


def _waits(store: Store, wish: LogWish) -> str:
    """What the small kubelet says of a container that it can't start."""
    found = store.get(PODS.table, f"{wish.namespace}/{wish.pod}")
    pod = msgspec.json.decode(found.raw, type=Pod) if found else Pod()
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = next((one.state.get("waiting") or {} for one in statuses if one.name == wish.container), {})
    return str(waiting.get("message") or "")
