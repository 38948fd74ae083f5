"""Who holds a slice: nobody gets it while a process of its pod lives or may come, and nobody waits without need."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.pods.slice_holders import COMING, LOOK_FOR_PROCESSES, SliceHolders
from aliquot_agent.pods.standing import Standing
from aliquot_agent.signal import Signal
from aliquot_core.claims import Claim
from aliquot_core.errors import ClusterError
from aliquot_core.objects import ObjectMeta, Pod, PodStatus
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.changes import Added, Deleted, Modified
from support.clocks import VirtualClock

HELD = Standing(pod="team/one", claims={"GPU-a": Claim(compute=Percent(60), memory=MiB(100))})


class Node:
    """A node, its processes and its CDI folder."""

    def __init__(self, *, before: Collection[str] = ()) -> None:
        self.clock = VirtualClock()
        self.pods = BoundPods(changed=Signal())
        self.living: set[str] = set()
        self.looks = 0
        self.unreadable = False
        self._before = before
        self.slices = SliceHolders(clock=self.clock, residents=self, memory=self, pods=self.pods)

    def alive(self, uids: Collection[str]) -> set[str]:
        """Who has a process, as /proc tells."""
        self.looks += 1
        return self.living & set(uids)

    def standing(self) -> dict[str, Standing]:
        """What agents before gave."""
        if self.unreadable:
            raise ClusterError("no such folder")
        return dict.fromkeys(self._before, HELD)

    def starts(self, uid: str) -> None:
        """A container of a pod is let start."""
        assert self.slices.current() is not None
        self.pods.take(Added(new=pod(uid)))
        self.slices.permit(uid, HELD)

    @property
    def holders(self) -> set[str]:
        """Who holds a slice."""
        return set(self.slices.current())


def pod(uid: str, phase: str = "Running") -> Pod:
    """A pod of this node."""
    return Pod(metadata=ObjectMeta(uid=uid), status=PodStatus(phase=phase))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ends_frees_its_slice_at_once(phase: str) -> None:
    """However short its life was: its kubelet says that nothing more comes."""
    node = Node()
    node.starts("u")
    assert node.holders == {"u"}
    node.pods.take(Modified(old=pod("u"), new=pod("u", phase)))
    assert node.holders == set()


async def test_a_pod_that_ended_before_it_went_frees_its_slice_at_once() -> None:
    """Also if nobody asked between its end and the end of its object."""
    node = Node()
    node.starts("u")
    node.pods.take(Modified(old=pod("u"), new=pod("u", "Succeeded")))
    node.pods.take(Deleted(old=pod("u", "Succeeded")))
    assert node.holders == set()


async def test_a_pod_whose_object_just_goes_holds_its_slice_while_a_process_may_come() -> None:
    """After a forced deletion the runtime may still be making what it was told to make."""
    node = Node()
    node.starts("u")
    node.pods.take(Deleted(old=pod("u")))
    assert (node.holders, set(node.slices.coming)) == ({"u"}, {"u"})
    await node.clock.advance(COMING - 0.1)
    assert (node.holders, set(node.slices.coming)) == ({"u"}, {"u"})
    await node.clock.advance(LOOK_FOR_PROCESSES)
    assert (node.holders, set(node.slices.coming)) == (set(), set())


async def test_a_pod_that_was_let_start_long_ago_holds_nothing_when_it_is_gone() -> None:
    """What was to come has come, and gone."""
    node = Node()
    node.starts("u")
    await node.clock.advance(COMING)
    node.pods.take(Deleted(old=pod("u")))
    assert node.holders == set()


@pytest.mark.parametrize("last", ["Running", "Failed"])
async def test_a_process_that_lives_holds_the_slice_as_long_as_it_lives(last: str) -> None:
    """Whether its pod was deleted by force, or failed by a kubelet that restarted; and nobody need hope for seconds."""
    node = Node()
    node.starts("u")
    node.living = {"u"}
    node.pods.take(Deleted(old=pod("u", last)))
    for _ in range(3):
        assert (node.holders, set(node.slices.coming)) == ({"u"}, set())
        await node.clock.advance(COMING)
    node.living = set()
    await node.clock.advance(LOOK_FOR_PROCESSES)
    assert node.holders == set()


async def test_a_container_that_starts_again_counts_from_then() -> None:
    """Each of our words may bring a process."""
    node = Node()
    node.starts("u")
    await node.clock.advance(COMING)
    node.slices.permit("u", HELD)
    node.pods.take(Deleted(old=pod("u")))
    assert node.slices.coming == frozenset()
    assert node.holders == {"u"}


async def test_what_an_agent_before_gave_counts_as_given_now() -> None:
    """It may have been killed the moment after it let a container start; nobody knows."""
    node = Node(before=["u"])
    assert node.holders == {"u"}
    await node.clock.advance(COMING)
    assert node.holders == set()


async def test_a_folder_that_can_not_be_read_is_read_later() -> None:
    """Till then nothing is known, and that is said."""
    node = Node(before=["u"])
    node.unreadable = True
    assert (node.holders, node.slices.remembered) == (set(), False)
    node.unreadable = False
    assert (node.holders, node.slices.remembered) == ({"u"}, True)


async def test_processes_are_looked_for_once_a_second() -> None:
    """A hundred starts that wait ask four times a second each; one who is newly gone is looked for at once."""
    node = Node()
    for uid in ("u", "v"):
        node.starts(uid)
    node.living = {"u", "v"}
    node.pods.take(Deleted(old=pod("u")))
    for _ in range(100):
        assert node.holders == {"u", "v"}
    assert node.looks == 1
    node.pods.take(Deleted(old=pod("v")))
    assert node.holders == {"u", "v"}
    assert node.looks == 2
    await node.clock.advance(LOOK_FOR_PROCESSES)
    assert node.holders == {"u", "v"}
    assert node.looks == 3
