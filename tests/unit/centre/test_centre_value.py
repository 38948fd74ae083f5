"""The centre chooses by the value that `simulate` chooses by, and learns what that needs from what it is told."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.centre.table_renewer import TableRenewer
from aliquot_scheduler.deciding.appraiser import Appraiser, Known, Work
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.fit.appraisal import Appraisal, room_of
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.simulating.fleet import ALL, Fleet
from aliquot_scheduler.simulating.valued import Valued
from aliquot_scheduler.simulating.workload import Machine, Need
from aliquot_scheduler.worth.loss import CROWDING
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.scarcity import scarcity
from aliquot_scheduler.worth.tables import tables
from support.centre import NAMES, asks, bound, gpus, make_node, picture_with
from support.clocks import VirtualClock

SEEN = Mix.of(
    {
        Shape(compute=100, memory=100, gpus=1): 4,
        Shape(compute=46, memory=46, gpus=1): 3,
        Shape(compute=54, memory=54, gpus=1): 3,
        Shape(compute=100, memory=100, gpus=2): 1,
    }
)
NODES = ("n1", "n2", "n3")


def demand(pod: Pod) -> Demand:
    """What the pod asks, made ready."""
    return demand_of(parse_request(pod, names=NAMES))


@given(st.lists(st.sampled_from([20, 46, 54, 81, 100, 200]), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None)
def test_the_centre_rates_nodes_and_takes_gpus_as_simulate_does(sizes: list[int]) -> None:
    """Pod after pod, on the same nodes, with the same mix."""
    fleet = Fleet([Machine(name=name, cores=0, memory=0, gpus=2, model="NVIDIA A100-SXM4-80GB") for name in NODES])
    valued = Valued(fleet, mix=SEEN)
    picture = picture_with(*(make_node(name, gpus(name, 2)) for name in NODES))
    rows = np.array([picture.nodes[name].row for name in NODES])

    def look(_: Pod) -> Appraisal:
        free = np.zeros(picture.grid.rows)
        return Appraisal(cells=picture.grid, free=free, tables=valued._tables, scarcity=valued._scarcity, cores=0.0)

    finder = Finder(picture=picture, names=NAMES, look=look)
    for number, size in enumerate(sizes):
        need = Need(cores=0, memory=0, gpus=max(1, size // 100), milli=10 * min(size, 100))
        pod = asks(f"u{number}", size, None)
        rating, found = valued.rate(need, ALL), finder.survey(pod, demand(pod))
        able = np.isfinite(rating.cost)
        assert found.fits[rows].tolist() == able.tolist()
        if not able.any():
            continue
        beyond = rating.cost[able] - rating.cost.min()
        assert found.cost[rows][able] == pytest.approx(np.minimum(beyond, 2.0), abs=1e-9)
        best = int(rating.cost.argmin())
        plan = finder.plan(pod, demand(pod), node=NODES[best])
        assert plan is not None
        taken = sorted(int(uuid.rsplit("-", 1)[1]) for uuid in plan.claims)
        assert taken == ([int(rating.gpu[best])] if need.shared else taken)
        fleet.put(need, row=best, gpus=taken)
        picture.hold(pod.metadata.uid, {(NODES[best], uuid): claim for uuid, claim in plan.claims.items()})


def make_appraiser(*, cpu: str = "8") -> tuple[Picture, Appraiser]:
    """Two nodes of two GPUs, with so many cores."""
    nodes = [make_node(name, gpus(name, 2)) for name in NODES[:2]]
    for node in nodes:
        node.status.allocatable["cpu"] = cpu
    picture = picture_with(*nodes)
    return picture, Appraiser(picture=picture, names=NAMES)


def with_cpu(pod: Pod, cpu: str) -> Pod:
    """The same pod, which requests cores too."""
    pod.spec.containers[0].resources.requests["cpu"] = cpu
    return pod


def test_cores_are_taken_from_binding_to_end_and_by_every_pod() -> None:
    """Whoever bound it, and whether or not it asks for GPUs."""
    picture, _ = make_appraiser()
    row = picture.nodes["n1"].row
    free = [picture.hosts.cores[row]]
    pod = bound(with_cpu(asks("u", 30, 1_000), "2500m"), node="n1", held={})
    for seen in (picture.pod_lies, picture.pod_lies, picture.pod_gone, picture.pod_gone):
        seen(pod)
        free.append(picture.hosts.cores[row])
    assert free == [8.0, 5.5, 5.5, 8.0, 8.0]


def free_cores(appraiser: Appraiser, pod: Pod) -> list[float]:
    """What both nodes have free, in the eyes of a pod."""
    free: list[float] = appraiser.look(pod)._free[:2].tolist()
    return free


def test_cores_that_are_promised_are_taken_and_not_from_the_pod_itself() -> None:
    """As it is with GPUs: what is found where a pod was promised room does not depend on that promise."""
    picture, appraiser = make_appraiser()
    turns = Queues(names=NAMES, random=lambda: 0.5, picture=picture)
    desk = Desk(picture=picture, names=NAMES, turns=turns, look=appraiser.look)
    first, second = (with_cpu(asks(uid, 30, 1_000), "2500m") for uid in ("u", "v"))
    before = free_cores(appraiser, first)
    promise = desk.promise_best(first, demand(first), now=0.0)
    assert promise is not None
    row = picture.nodes[promise.node].row
    expected = [8.0, 8.0]
    expected[row] = 5.5
    assert (before, free_cores(appraiser, first), free_cores(appraiser, second)) == ([8.0, 8.0], [8.0, 8.0], expected)
    desk.take_back("u")
    assert free_cores(appraiser, second) == [8.0, 8.0]


def test_a_pod_that_is_resized_in_place_takes_what_it_asks_for_now() -> None:
    """More or less than when it was bound."""
    picture, _ = make_appraiser()
    row = picture.nodes["n1"].row
    for cpu, left in (("2500m", 5.5), ("4", 4.0), ("1", 7.0)):
        picture.pod_lies(bound(with_cpu(asks("u", 30, 1_000), cpu), node="n1", held={}))
        assert picture.hosts.cores[row] == left


@pytest.mark.parametrize("cpu", ["", "nonsense"])
def test_a_node_that_does_not_say_its_cores_has_none_to_value(cpu: str) -> None:
    """Before and after somebody lies there; the largest node is another one."""
    picture, appraiser = make_appraiser()
    untold = make_node("n3", gpus("n3", 2))
    untold.status.allocatable.pop("cpu", None)
    if cpu:
        untold.status.allocatable["cpu"] = cpu
    picture.node_seen(untold)
    row = picture.nodes["n3"].row
    pod = bound(with_cpu(asks("u", 30, 1_000), "2"), node="n3", held={})
    for lying in ((), (pod,)):
        for one in lying:
            picture.pod_lies(one)
        assert (picture.hosts.cores[row], appraiser.look(pod)._free[row]) == (0.0, 0.0)
        assert appraiser._hardware().cores == 8.0


def test_nothing_is_known_of_the_cores_of_a_node_that_is_gone() -> None:
    """Tables are made for the largest that is there; and who comes in its place has its own."""
    picture, appraiser = make_appraiser()
    for cpu in ("64", "16"):
        node = make_node("big", gpus("big", 2))
        node.status.allocatable["cpu"] = cpu
        picture.node_seen(node)
        row = picture.nodes["big"].row
        assert (appraiser._hardware().cores, picture.hosts.cores[row]) == (float(cpu), float(cpu))
        picture.node_gone("big")
        assert (appraiser._hardware().cores, picture.hosts.cores[row]) == (8.0, 0.0)


def test_percents_of_memory_are_whole_where_the_mib_are() -> None:
    """70 % of a card is not 69, whatever its size."""
    for memory in (40_000, 50_300, 100_600):
        cards = tuple(msgspec.structs.replace(card, memory=memory) for card in gpus("n1", 1))
        picture = picture_with(make_node("n1", cards))
        usable, row = cards[0].usable.value, picture.nodes["n1"].row
        picture.hold("a", {("n1", cards[0].uuid): Claim(compute=Percent(30), memory=MiB(usable * 30 // 100))})
        assert room_of(picture.grid, cores=np.zeros(picture.grid.rows)).memory[0, row] == 70


def test_crowding_counts_on_each_gpu_and_not_on_nodes_alone() -> None:
    """A node may have GPUs of two models, one of which is scarce."""
    picture = picture_with(make_node("n1", (*gpus("a", 1, model="NVIDIA T4"), *gpus("n1", 1, model="NVIDIA L40S"))))
    known = tables(SEEN, kinds=[kind.models for kind in picture.grid.kinds], gpus=2, cores=0.0)
    cores = np.zeros(picture.grid.rows)
    room, row = room_of(picture.grid, cores=cores), picture.nodes["n1"].row
    prices = msgspec.structs.replace(scarcity(room, known), crowding=np.array([2.0, 0.5]))
    appraisal = Appraisal(cells=picture.grid, free=cores, tables=known, scarcity=prices, cores=0.0)
    lost = [appraisal.on_node(row)(column)(compute=100, memory=80_000, taken=(46, 10)) for column in (0, 1)]
    assert lost[0] - lost[1] == pytest.approx(CROWDING * (2.0 - 0.5) * 0.46)


def test_what_pods_ask_is_learnt_once_each() -> None:
    """However often a pod is told of."""
    _, appraiser = make_appraiser()
    for number in range(30):
        for _ in range(3):
            appraiser.pod_seen(with_cpu(asks(f"u{number}", 46, None), "4"))
    assert appraiser.book.requests == 30
    (shape, count), *more = appraiser.book.page().counts
    assert not more
    assert (shape.cores, shape.compute, shape.memory, shape.gpus) == (4.0, 46, 46, 1)
    assert count > 29


def test_tables_are_renewed_beside_the_decisions() -> None:
    """Whoever decides meanwhile goes on with those that are there; work for other hardware is of no use."""
    picture, appraiser = make_appraiser()
    pod = asks("p", 30, None)
    first = appraiser.look(pod).tables
    assert appraiser.due() is None
    for number in range(10):
        appraiser.pod_seen(asks(f"u{number}", 46, None))
    work = appraiser.due()
    assert work is not None
    assert appraiser.look(pod).tables is first
    appraiser.renew(work())
    renewed = appraiser.look(pod).tables
    assert renewed is not first
    assert (appraiser.due(), renewed.slots[46, 46] > first.slots[46, 46]) == (None, True)
    picture.node_seen(make_node("n3", gpus("n3", 1, model="NVIDIA T4")))
    others = appraiser.look(pod).tables
    assert others.allowed.shape[1] == renewed.allowed.shape[1] + 1
    appraiser.renew(work())
    assert appraiser.look(pod).tables is others


async def test_the_renewer_has_the_work_done_aside() -> None:
    """And takes in what came of it, when it came."""
    _, appraiser = make_appraiser()
    appraiser.look(asks("p", 30, None))
    asked: list[Work] = []
    done: asyncio.Future[Known] = asyncio.get_running_loop().create_future()

    def aside(work: Work) -> asyncio.Future[Known]:
        asked.append(work)
        return done

    clock = VirtualClock()
    renewing = asyncio.ensure_future(TableRenewer(appraiser=appraiser, clock=clock, aside=aside).run())
    await clock.advance(60.0)
    assert not asked
    for number in range(10):
        appraiser.pod_seen(asks(f"u{number}", 46, None))
    await clock.advance(60.0)
    assert (len(asked), appraiser.due() is None) == (1, False)
    done.set_result(asked[0]())
    await clock.advance(60.0)
    assert (len(asked), appraiser.due()) == (1, None)
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)


def test_a_pod_that_says_how_it_wants_to_lie_is_taken_at_its_word() -> None:
    """`pack` and `spread` are its author's."""
    picture, appraiser = make_appraiser()
    finder = Finder(picture=picture, names=NAMES, look=appraiser.look)
    plain = Finder(picture=picture, names=NAMES)
    picture.pod_seen(bound(asks("old", 46, 30_000), node="n1", held={"GPU-n1-0": (46, 30_000)}))
    for wish in ("pack", "spread"):
        pod = asks("u", 46, 30_000, annotations={NAMES.placement: wish})
        assert finder.survey(pod, demand(pod)).cost.tolist() == plain.survey(pod, demand(pod)).cost.tolist()
