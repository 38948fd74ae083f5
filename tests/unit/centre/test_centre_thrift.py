"""What the centre spares the API server, and that many at once are placed as well as one after the other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.centre import gatekeeper, pod_patches
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended
from aliquot_scheduler.queues.turns import Queues
from support.centre import asks, gpus, make_node, picture_with, with_grant
from support.large_cluster import NAMES, NAMESPACE, node_names, pod_manifest
from support.reigning import Reigning, reigning, until
from support.server_apart import PODS

GATES = [{"name": NAMES.gate}]


LIFTED, NOMINATED = "PATCH pods", "PATCH pods/status"
# Whether it waits behind its gate, its group, how many nodes are few, and what is written before its binding.
FIRST_TURNS: dict[str, tuple[bool, str, int, list[str]]] = {
    "ungated": (False, "", 1, []),
    "gated": (True, "", 1, [LIFTED]),
    "gated, more nodes": (True, "", 0, [NOMINATED, LIFTED]),
    "gated, of a group": (True, "g", 1, [NOMINATED, LIFTED]),
}


@pytest.mark.parametrize("row", FIRST_TURNS)
async def test_how_often_a_pod_at_its_first_turn_is_written_to(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 halves at once on 8 cards: three times at most, and two on each card."""
    gated, group, few, lifting = FIRST_TURNS[row]
    monkeypatch.setattr(pod_patches, "FEW_NODES", few)
    # The watch tells of the first of two writes.
    monkeypatch.setattr(gatekeeper, "_UNTIL_TOLD", 3_600.0)
    async with reigning() as on:
        on.join("node-a")
        names = [f"half-{number}" for number in range(16)]
        spec: dict[str, Any] = {"schedulingGates": GATES} if gated else {}
        for name in names:
            manifest = pod_manifest(name, compute=50, memory=40_000, **spec)
            if group:
                manifest["metadata"] |= {"labels": {NAMES.group: group}, "annotations": {NAMES.group_size: "16"}}
            on.create(PODS, manifest)
        keys = [f"{NAMESPACE}/{name}" for name in names]
        await until(lambda: not on.reign.why_not() and on.reign.picture.nodes["node-a"].out == "")
        await until(lambda: all(on.writes.get(key, []) == lifting for key in keys))
        await asyncio.gather(*map(on.place, names))
        assert on.writes == {key: [*lifting, "POST pods/binding"] for key in keys}
        assert await on.slices_per_gpu() == {2: 8}


async def test_16_halves_at_once_go_the_whole_way_to_two_on_each_of_8_cards_in_100_of_100_runs() -> None:
    """Over the API server and its watches, gated and not, kube-scheduler's calls in any order."""
    for seed in range(100):
        chance = random.Random(seed)
        async with reigning() as on:
            on.join("node-a")
            names = [f"half-{number}" for number in range(16)]
            spec: dict[str, Any] = {"schedulingGates": GATES} if seed % 2 else {}
            await until(lambda on=on: not on.reign.why_not() and on.reign.picture.nodes["node-a"].out == "")  # type: ignore[misc]
            for name in names:
                on.create(PODS, pod_manifest(name, compute=50, memory=40_000, **spec))
            await until(lambda on=on: len(on.reign.desk.pods) == 16)  # type: ignore[misc]
            await until(lambda on=on, names=names: all(was_told(on, name) for name in names))  # type: ignore[misc]
            chance.shuffle(names)
            await asyncio.gather(*(placed_after(on, name, steps=chance.randrange(20)) for name in names))
            assert await on.slices_per_gpu() == {2: 8}, seed


async def placed_after(on: Reigning, name: str, *, steps: int) -> None:
    """Be kube-scheduler to a pod after others have had so many turns of the loop."""
    for _ in range(steps):
        await asyncio.sleep(0)
    await on.place(name)


async def test_a_decision_among_1000_nodes_asks_the_api_server_for_two_writes_and_nothing_else() -> None:
    """However many nodes there are: what is known of them was read at the start, and comes by watches since then."""
    async with reigning() as on:
        names = node_names(1_000)
        for name in names:
            on.join(name)
        known = on.reign.picture.nodes
        await until(
            lambda: not on.reign.why_not() and len(known) == 1_000 and not any(one.out for one in known.values())
        )
        on.reads.clear()
        pods = [f"half-{number}" for number in range(8)]
        for name in pods:
            on.create(PODS, pod_manifest(name, compute=50, memory=40_000, schedulingGates=GATES))
        await until(lambda: all(was_told(on, name) for name in pods))
        await asyncio.gather(*map(on.place, pods))
        each = [LIFTED, "POST pods/binding"]
        assert on.writes == {f"{NAMESPACE}/{name}": each for name in pods}
        assert on.reads == {}


@pytest.mark.parametrize(("plain", "written"), [(999, [LIFTED]), (1_000, [NOMINATED, LIFTED])])
async def test_nodes_without_gpus_count_where_a_nomination_is_weighed(plain: int, written: list[str]) -> None:
    """Beside one that has them: kube-scheduler goes round them all, as it finds too few to end early."""
    async with reigning() as on:
        on.join("node-a")
        for number in range(plain):
            on.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"cpu-{number}"}})
        known = on.reign.picture.nodes
        await until(lambda: not on.reign.why_not() and len(known) == plain + 1 and known["node-a"].out == "")
        on.create(PODS, pod_manifest("half", compute=50, memory=40_000, schedulingGates=GATES))
        await until(lambda: was_told(on, "half"))
        assert await on.place("half") == "node-a"
        assert on.writes == {f"{NAMESPACE}/half": [*written, "POST pods/binding"]}


async def test_a_nomination_ends_with_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler would keep the pod's room for it for good, whatever the centre says of that room."""
    monkeypatch.setattr(pod_patches, "FEW_NODES", 0)
    async with reigning(promise=0.05) as on:
        on.join("node-a", cards=1)
        key = f"{NAMESPACE}/stuck"
        on.create(PODS, pod_manifest("stuck", compute=60, memory=40_000, schedulingGates=GATES))
        turn = [NOMINATED, LIFTED, NOMINATED]
        # Its scheduler was never heard, so the next one comes late.
        await until(lambda: on.writes.get(key, []) == turn)
        assert await on.nominated("stuck") == ""


def was_told(on: Reigning, name: str) -> bool:
    """Whether the leader's own watch has told it that a pod's gate is lifted."""
    return any(pod.metadata.name == name and not pod.spec.scheduling_gates for pod in on.reign.desk.pods.values())


async def test_what_is_written_on_a_pod_starts_no_round_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes, and is looked at; that it was nominated and let through is no news to whoever wrote it."""
    async with reigning() as on:

        async def let_in(name: str) -> None:
            on.create(PODS, pod_manifest(name, compute=50, memory=40_000, schedulingGates=GATES))
            await until(lambda: was_told(on, name))

        on.join("node-a")
        await let_in("first")
        look, looks = on.reign.gatekeeper.look, Counter[str]()

        def counted() -> None:
            looks["round"] += 1
            look()

        monkeypatch.setattr(on.reign.gatekeeper, "look", counted)
        await let_in("second")
        assert looks == {"round": 1}


async def test_nodes_that_join_cost_no_write() -> None:
    """40 at once, all of them in as soon as the watches have told of them."""
    async with reigning() as on:
        await until(lambda: not on.reign.why_not())
        names = node_names(40)
        for name in names:
            on.join(name)
        known = on.reign.picture.nodes
        await until(lambda: len(known) == len(names) and not any(node.out for node in known.values()))
        assert on.writes == {}


class Stream:
    """Pods that ask at once: each is filtered, bound and seen to be granted, in an order that chance says."""

    def __init__(self, *, pods: int, nodes: int) -> None:
        self.nodes = node_names(nodes)
        self.picture = picture_with(*(make_node(name, gpus(name, 8)) for name in self.nodes))
        turns = Queues(names=NAMES, random=lambda: 0.5, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=turns)
        self.pods = [asks(f"u{number}", 50, 40_000) for number in range(pods)]
        for pod in self.pods:
            self.desk.pod_seen(pod)

    def place(self, *, seed: int, at_once: int) -> None:
        """Place all, so many under way at the same time."""
        chance = random.Random(seed)
        waiting, under_way = list(self.pods), list[Pod]()
        while waiting or under_way:
            if waiting and (not under_way or (len(under_way) < at_once and chance.random() < 0.7)):
                pod = waiting.pop()
                assert self.desk.filter(pod, self.nodes, now=0.0).nodes, "there is room for all"
                under_way.append(pod)
            else:
                self._bind(under_way.pop(chance.randrange(len(under_way))))

    def _bind(self, pod: Pod) -> None:
        grades = dict(zip(self.nodes, self.desk.prioritize(pod, self.nodes), strict=True))
        begun = self.desk.begin_bind(uid=pod.metadata.uid, node=max(grades, key=grades.__getitem__), now=0.0)
        assert not isinstance(begun, str), begun
        self.desk.bind_ended(pod.metadata.uid, Ended.TAKEN, now=0.0)
        self.desk.pod_seen(with_grant(pod, begun.plan.grant))

    def slices_per_gpu(self) -> Counter[int]:
        """How many GPUs bear how many slices."""
        holders = (gpu for held in self.picture.holdings.everything().values() for gpu in held)
        return Counter(Counter(holders).values())


def test_16_halves_at_once_lie_two_on_each_of_8_cards_in_100_of_100_runs() -> None:
    """However their calls interleave, nobody is refused and no card is broken up."""
    for seed in range(100):
        stream = Stream(pods=16, nodes=1)
        stream.place(seed=seed, at_once=16)
        assert stream.slices_per_gpu() == {2: 8}, seed


def test_800_halves_fill_400_gpus_two_on_each() -> None:
    """A half that breaks up a card while another half stands open would leave the last one without room."""
    stream = Stream(pods=800, nodes=50)
    stream.place(seed=1, at_once=30)
    assert stream.slices_per_gpu() == {2: 400}
