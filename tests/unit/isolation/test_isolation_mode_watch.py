"""The agent asks for each GPU's mode as pods come and go; what it can't know leaves all as it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from aliquot_agent.isolation.gpu_modes import Seat, Told, Use, hindrance
from aliquot_agent.isolation.mode_watch import seats, watch_modes
from aliquot_agent.isolation.mps_folder import AnotherKeeperError, MpsFolder, MpsFolderError
from aliquot_agent.pods.standing import Standing
from aliquot_agent.signal import Signal
from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from support.clocks import VirtualClock

NAMES = Names()
SHARED, WATCHED = "GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b"
CARDS = Inventory(
    gpus=(
        Gpu(uuid=SHARED, index=0, model="A100", memory=40_000, isolation=["mps"]),
        Gpu(uuid=WATCHED, index=1, model="A100", memory=40_000),
    )
)


def bound(uid: str, *, compute: int, gpu: str = SHARED, age: int = 0, phase: str = "Pending") -> Pod:
    """A pod that is bound here with a slice."""
    part = Slice(gpu=gpu, compute=Percent(compute), limit=Percent(compute), memory=MiB(1_000))
    grant = Grant(node="n1", pod=uid, containers={"main": ContainerGrant(slices=(part,), isolation="mps")})
    limits = {NAMES.compute: str(compute), NAMES.memory: "1000"}
    return msgspec.convert(
        {
            "metadata": {
                "name": uid,
                "namespace": "team",
                "uid": uid,
                "annotations": {NAMES.grant: encode_grant(grant)},
                "creationTimestamp": f"2026-11-22T00:00:{59 - age:02}Z",
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


def holds(*, closes: bool, gpu: str = SHARED) -> Standing:
    """What a pod that was let start holds."""
    claim = Claim(compute=Percent(100 if closes else 30), memory=MiB(1_000), closes=closes)
    return Standing(pod="team/x", claims={gpu: claim})


class Node:
    """What is known of a node, as it changes."""

    def __init__(self, root: Path) -> None:
        self.folder = MpsFolder(root / "mps")
        self.clock = VirtualClock()
        self.changed = Signal()
        self.pods: dict[str, Pod] = {}
        self.standing: dict[str, Standing] | None = {}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Let the agent ask."""
        work = asyncio.ensure_future(
            watch_modes(
                self.folder,
                names=NAMES,
                clock=self.clock,
                changed=self.changed,
                inventory=lambda: CARDS,
                pods=lambda: self.pods,
                standing=lambda: self.standing,
            )
        )
        yield
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def asked(self) -> Use:
        """What is asked for once everything was heard of."""
        await self.clock.advance(2)
        return self.folder.wanted(SHARED)


async def test_a_gpu_follows_its_pods(tmp_path: Path) -> None:
    """From free to shared for who comes, kept for who is there, to one alone when all others have ended, and free."""
    node = Node(tmp_path)
    async with node.watched():
        assert await node.asked() is Use.FREE
        node.pods = {"a": bound("a", compute=30, age=9), "b": bound("b", compute=100)}
        assert await node.asked() is Use.SHARED, "the older one comes first"
        node.standing = {"a": holds(closes=False)}
        assert await node.asked() is Use.SHARED, "while it lives, the other one waits"
        node.pods["a"] = bound("a", compute=30, phase="Succeeded")
        node.standing = {}
        assert await node.asked() is Use.EXCLUSIVE
        node.pods = {}
        assert await node.asked() is Use.FREE


async def test_what_is_left_of_a_pod_that_is_gone_keeps_the_mode(tmp_path: Path) -> None:
    """Its object was deleted by force: while a process of it lives, the GPU is not another's."""
    node = Node(tmp_path)
    node.standing = {"gone": holds(closes=True)}
    node.pods = {"b": bound("b", compute=30)}
    async with node.watched():
        assert await node.asked() is Use.EXCLUSIVE
        node.standing = {}
        assert await node.asked() is Use.SHARED


async def test_an_agent_that_knows_nothing_yet_changes_nothing(tmp_path: Path) -> None:
    """It starts beside pods that run: what stands in the folder stays until it knows who they are."""
    node = Node(tmp_path)
    node.folder.want(SHARED, Use.SHARED)
    node.standing = None
    async with node.watched():
        assert await node.asked() is Use.SHARED
        node.standing = {}
        assert await node.asked() is Use.FREE


async def test_other_gpus_and_forged_grants_ask_for_nothing(tmp_path: Path) -> None:
    """Only GPUs that MPS shares have a seat, and only a good grant counts."""
    node = Node(tmp_path)
    forged = bound("c", compute=30)
    forged.metadata.annotations[NAMES.grant] = "{"
    node.pods = {"w": bound("w", compute=30, gpu=WATCHED), "c": forged}
    async with node.watched():
        assert await node.asked() is Use.FREE
    assert node.folder.gpus() == []
    assert seats(node.folder, CARDS) == {SHARED: Seat(wanted=Use.FREE, kept=False)}
    assert seats(None, CARDS) == {}


def test_what_is_no_gpu_has_no_place_in_the_folder(tmp_path: Path) -> None:
    """A uuid becomes part of a path, and what stands in the folder by another name is nobody's wish."""
    folder = MpsFolder(tmp_path)
    with pytest.raises(MpsFolderError, match="no uuid"):
        folder.want("GPU-../../etc", Use.SHARED)
    (tmp_path / "lost+found").mkdir()
    assert folder.gpus() == []
    folder.want(SHARED, Use.SHARED)
    (tmp_path / SHARED / "wanted").write_text("everything")
    assert (folder.gpus(), folder.wanted(SHARED)) == ([SHARED], Use.FREE)


def test_who_looks_for_the_keeper_is_not_taken_for_it(tmp_path: Path) -> None:
    """Two that look at the same instant see nobody; a keeper that holds the folder is seen, until it ends."""
    folder = MpsFolder(tmp_path)
    assert (folder.kept(), folder.was_kept()) == (False, False)
    held = folder.hold()
    assert (folder.kept(), folder.was_kept()) == (True, True)
    os.close(held)
    assert (folder.kept(), folder.was_kept()) == (False, True)


def test_a_keeper_that_begins_takes_back_what_an_earlier_one_told(tmp_path: Path) -> None:
    """Its daemons may be gone, as after a reboot that the folder outlived; one that lives is not spoken for."""
    folder = MpsFolder(tmp_path)
    folder.want(SHARED, Use.SHARED)
    folder.tell(SHARED, Told(use=Use.SHARED, most_clients=48))
    assert "does not run" in hindrance(folder.seat(SHARED), use=Use.SHARED)
    held = folder.hold()
    assert folder.seat(SHARED).told is None
    assert hindrance(folder.seat(SHARED), use=Use.SHARED)
    folder.tell(SHARED, Told(use=Use.SHARED, most_clients=48))
    with pytest.raises(AnotherKeeperError):
        folder.hold()
    assert hindrance(folder.seat(SHARED), use=Use.SHARED) == ""
    os.close(held)
