"""The agent's own pacemaker, ten times a second at work on containers of a fake GPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Self

import msgspec

from aliquot_agent.isolation.limits_file import WHOLE
from aliquot_agent.isolation.pacemaker import BEAT_S, Pacemaker
from aliquot_agent.isolation.pacing import Share
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_kube.clock import SystemClock
from support.isolation import Container


class Pacer:
    """A thread in which it beats until it is told to stop."""

    def __init__(self, shares: Mapping[Container, Share]) -> None:
        """These containers of one world are granted these shares of GPU 0."""
        for container, share in shares.items():
            granted = {"guarantee": round(share.guarantee * WHOLE), "limit": round(share.limit * WHOLE)}
            container.set(msgspec.structs.replace(container.gpus[0], **granted))
        (folder,) = {container.world.folder for container in shares}
        files = SliceFiles(folder=folder, library=folder / "none")
        self._pacemaker = Pacemaker(files=files, clock=SystemClock())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(10)
        assert not self._pacemaker.faults

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._pacemaker.beat()
