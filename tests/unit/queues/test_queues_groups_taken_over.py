"""Groups that were let in when the leader changed, and are not all bound: they lie as they want to lie all the same."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import Turn
from support.centre import NAMES, gpus, make_node, sick
from support.lying_together import check_together
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
SPECS = {"a": queue(), "b": queue()}
CARDS, NODES = 4, 3
# How many are bound in some walks, at the least.
MANY = 40
ALL = [f"n{number}" for number in range(NODES)]


def cards_of(node: str) -> list[Gpu]:
    """Of which the first two, and the last two, reach each other over NVLinks."""
    made = gpus(node, CARDS, memory=80_000)
    return [replace(one, links={two.uuid: "NV4" for two in made if two.index // 2 == one.index // 2}) for one in made]


def a_stage() -> Stage:
    """Three nodes of four cards."""
    stage = Stage(SPECS, nodes=(CARDS,) * NODES)
    for node in ALL:
        stage.picture.node_seen(make_node(node, cards_of(node)))
    return stage


def group(stage: Stage, topology: str, *, pods: int = 2, compute: int = 200, least: int = 0) -> list[str]:
    """One that is let in; who of it."""
    notes = {"group-size": str(pods), "group-min": str(least or pods), "group-topology": topology}
    names = [f"g{number}" for number in range(pods)]
    for name in names:
        stage.submit(name, compute, queue="a", group="g", notes=notes)
    assert sorted(stage.round()) == names
    return names


def found_by_another(stage: Stage, *others: Pod) -> Stage:
    """The next leader, which finds others before the pods of this one."""
    new = a_stage()
    for pod in (*others, *stage.pods.values()):
        new.see(pod)
    return new


def there_already(uid: str, node: str, *, card: int = 0) -> Pod:
    """One that was bound to a card while nobody led."""
    stage = a_stage()
    stage.submit(uid, 100, queue="b", notes={"gpu-uuid": f"GPU-{node}-{card}"})
    assert stage.run() == [uid]
    return stage.pods[uid]


def asked_for(stage: Stage, uid: str, *, times: int = 1) -> list[str]:
    """Which nodes kube-scheduler is told of, when it asks for the last time."""
    told = [list(stage.desk.filter(stage.pods[uid], ALL, now=stage.now).nodes) for _ in range(times)]
    return told[-1]


def where(stage: Stage, *uids: str) -> list[str]:
    """The node on which room is kept for each; empty if none is."""
    kept = {promise.pod.metadata.uid: promise.node for promise in stage.desk.promises}
    return [kept.get(uid, "") for uid in uids]


def bind(stage: Stage, uid: str, *, node: str) -> None:
    """kube-scheduler has chosen that one of those that it was told of."""
    promise = stage.desk.begin_bind(uid=uid, node=node, now=stage.now)
    assert isinstance(promise, Promise), promise
    stage.turns[uid] = Turn(pod=stage.pods[uid], promise=promise, number=1)
    stage.bind(uid)


@pytest.mark.parametrize(("topology", "compute"), [("node", 200), ("spread", 100), ("nvlink", 100), ("nvlink", 60)])
@pytest.mark.parametrize("times", [1, 2], ids=["at once", "something forbade it at first"])
@pytest.mark.parametrize("bound", [0, 1])
def test_who_of_a_group_is_not_bound_yet_goes_where_it_would_have_gone(
    topology: str, compute: int, times: int, bound: int
) -> None:
    """Whichever of the nodes it is told of kube-scheduler chooses, however often it asks, and whoever is bound."""
    old = a_stage()
    names = group(old, topology, compute=compute)
    mine = where(old, *names)
    old.bind(*names[:bound])
    old.lift(*names[bound:])
    new = found_by_another(old)
    assert new.round(after=1.0) == []
    for uid, node in zip(names[bound:], mine[bound:], strict=True):
        assert asked_for(new, uid, times=times) == [node]
        bind(new, uid, node=node)
    check_together(new)


def test_the_room_that_was_kept_again_is_what_kube_scheduler_is_told_of() -> None:
    """Pods of no group too: else another place as good were looked for, of all nodes, at the first question."""
    old = a_stage()
    old.submit("p", 100, queue="a")
    assert old.round() == ["p"]
    old.lift("p")
    new = found_by_another(old)
    assert new.round(after=1.0) == []
    (before,) = new.desk.promises
    assert asked_for(new, "p") == [before.node]
    (after,) = new.desk.promises
    assert after.plan is before.plan
    assert set(asked_for(new, "p")) == set(ALL)


def test_who_lost_its_place_is_beside_the_others_of_its_group() -> None:
    """Somebody has its card, and the node has another."""
    old = a_stage()
    names = group(old, "node", compute=100)
    old.lift(*names)
    (node, _) = where(old, *names)
    new = found_by_another(old, there_already("x", node))
    assert new.round(after=1.0) == []
    assert where(new, *names) == [node, node]
    assert asked_for(new, "g0", times=2) == [node]


def test_a_group_whose_node_has_no_room_for_all_any_more_goes_elsewhere_as_a_whole() -> None:
    """Nobody of it is bound yet: to leave one behind would be no group."""
    old = a_stage()
    names = group(old, "node")
    old.lift(*names)
    (node, _) = where(old, *names)
    new = found_by_another(old, there_already("x", node))
    assert new.round(after=1.0) == []
    (first, second) = where(new, *names)
    assert first == second != node
    assert [asked_for(new, uid, times=2) for uid in names] == [[first], [first]]


def test_who_has_no_room_beside_one_that_is_bound_has_none() -> None:
    """It is placed on no other node, and its turn is lost; who keeps room there goes on having it."""
    old = a_stage()
    names = group(old, "node", pods=3, compute=100, least=2)
    (node, *_) = where(old, *names)
    old.bind("g0")
    old.lift("g1", "g2")
    others = [there_already(f"x{card}", node, card=card) for card in (2, 3)]
    new = found_by_another(old, *others)
    assert new.round(after=1.0) == []
    assert sorted(where(new, "g1", "g2")) == ["", node]
    assert sorted(asked_for(new, uid) for uid in ("g1", "g2")) == [[], [node]]


def test_a_whole_group_that_fits_nowhere_keeps_the_room_that_some_of_it_have() -> None:
    """As long as their turn lasts: the others may yet come in beside them."""
    old = a_stage()
    names = group(old, "node")
    old.lift(*names)
    (node, _) = where(old, *names)
    new = found_by_another(old, *[there_already(f"x-{one}", one) for one in ALL])
    assert new.round(after=1.0) == []
    assert sorted(where(new, *names)) == ["", node]
    assert sorted(asked_for(new, uid) for uid in names) == [[], [node]]


def test_a_group_of_which_nobody_has_room_any_more_has_none_if_not_for_all() -> None:
    """Its node has fallen sick, and the others take one of them each."""
    old = a_stage()
    names = group(old, "node")
    old.lift(*names)
    (node, _) = where(old, *names)
    new = found_by_another(old, *[there_already(f"x-{one}", one) for one in ALL if one != node])
    new.picture.node_seen(make_node(node, [sick(card) for card in cards_of(node)]))
    assert new.round(after=1.0) == []
    assert where(new, *names) == ["", ""]
    assert [asked_for(new, uid) for uid in names] == [[], []]


def test_of_cards_that_are_linked_another_will_do() -> None:
    """A card falls sick after its room was kept again: kube-scheduler is told of the node all the same."""
    old = a_stage()
    names = group(old, "nvlink", compute=40)
    old.lift(*names)
    new = found_by_another(old)
    assert new.round(after=1.0) == []
    (node, _), (first, *cards) = where(new, *names), cards_of("n0")
    assert node == "n0"
    new.picture.node_seen(make_node(node, [sick(first), *cards]))
    assert asked_for(new, "g0", times=2) == [node]


def test_a_node_that_is_silent_is_waited_for_by_all_of_a_group() -> None:
    """None of them is placed elsewhere meanwhile."""
    old = a_stage()
    names = group(old, "node")
    old.lift(*names)
    (node, _) = where(old, *names)
    new = found_by_another(old)
    new.picture.lease_gone(NAMES.lease(node))
    assert list(new.queues.turns(new.desk, now=new.now)) == []
    assert where(new, *names) == ["", ""]
    assert asked_for(new, "g0") == []
    assert new.round(after=1.0) == []
    assert where(new, "g1") == [node]


def a_change_of_leaders(chance: Random) -> tuple[Stage, list[str]]:
    """Some of a group may be bound by then, others have cards, and a card be sick or a node be cordoned."""
    old, size = a_stage(), chance.choice((2, 3))
    topology, compute = (
        chance.choice(("node", "spread", "nvlink")),
        chance.choice((50, 60, 100) if size == 2 else (30, 40)),
    )
    names = group(old, topology, pods=size, compute=compute)
    early = chance.sample(names, chance.choice((0, 0, 1)))
    old.bind(*early)
    old.lift(*[name for name in names if name not in early])
    held = {gpu for uid in early for gpu in old.picture.holdings.of(uid)}
    taken = chance.sample([(node, card) for node in ALL for card in range(CARDS)], chance.choice((0, 2, 5)))
    free = [(node, card) for node, card in taken if (node, f"GPU-{node}-{card}") not in held]
    new = found_by_another(old, *[there_already(f"x{node}{card}", node, card=card) for node, card in free])
    if chance.random() < 0.5:
        first, *cards = cards_of(node := chance.choice(ALL))
        new.picture.node_seen(make_node(node, [sick(first), *cards], cordoned=chance.random() < 0.5))
    return new, names


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_however_things_have_changed_meanwhile_a_group_lies_as_it_wants_to(first: int) -> None:
    """Walks: however often kube-scheduler asks, whomever it asks for first, and whichever node it takes."""
    bound = 0
    for seed in range(first, first + 40):
        chance = Random(seed)
        stage, names = a_change_of_leaders(chance)
        stage.round(after=1.0)
        for uid in chance.sample(names, len(names)):
            if stage.pods[uid].spec.node_name:
                continue
            if told := asked_for(stage, uid, times=chance.choice((1, 2))):
                bind(stage, uid, node=chance.choice(told))
                bound += 1
        check_together(stage)
    assert bound > MANY, "hardly anybody was bound"
