"""Gangs on cards: one node, one NVLink island, apart; and those that can't run."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import COMPUTE
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue

ONE = {"a": queue()}
replace = msgspec.structs.replace


def linked(node: str, count: int, *, pairs: int = 2) -> list[Gpu]:
    """GPUs of which each `pairs` neighbours are an NVLink island."""
    made = gpus(node, count)
    return [
        replace(gpu, links={other.uuid: "NV4" for other in made if other.index // pairs == gpu.index // pairs})
        for gpu in made
    ]


def gang(stage: Stage, name: str, *, pods: int, compute: int, topology: str, **more: str) -> None:
    """Submit one."""
    notes = {"group-size": str(pods), "group-topology": topology, **more}
    for number in range(pods):
        stage.submit(f"{name}{number}", compute, queue="a", group=name, notes=notes)


def nodes_of(stage: Stage, *uids: str) -> list[str]:
    """Where pods hold cards."""
    return sorted({node for uid in uids for node, _ in stage.picture.holdings.of(uid)})


def test_a_gang_of_one_node_lies_on_one_node() -> None:
    """It waits though there is room on two nodes, and goes where all of it has room; the others see no other node."""
    stage = Stage(ONE, nodes=(2, 4))
    stage.submit("x", 100, queue="a")
    stage.submit("y", 250, queue="a")
    assert stage.run() == ["x", "y"]
    gang(stage, "g", pods=2, compute=100, topology="node")
    assert stage.run() == []
    stage.end("x")
    assert stage.round() == ["g0", "g1"]
    assert nodes_of(stage, "g0", "g1") == ["n0"]
    open_pod = replace(stage.pods["g0"], spec=replace(stage.pods["g0"].spec, scheduling_gates=[]))
    # The node of its turn is told alone; who comes again is told of the others too.
    assert stage.desk.filter(open_pod, ["n0", "n1"], now=stage.now).unresolvable == {}
    asked = stage.desk.filter(open_pod, ["n0", "n1"], now=stage.now)
    assert asked.nodes == ["n0"]
    assert "group lies elsewhere" in asked.unresolvable["n1"]


def test_a_gang_of_one_island_lies_on_linked_gpus() -> None:
    """Three free cards of two islands are not enough for two; later members join the same island."""
    stage = Stage(ONE, nodes=(4,))
    stage.picture.node_seen(make_node("n0", linked("n0", 4)))
    for name, gpu in (("x", 0), ("y", 3)):
        stage.submit(name, 100, queue="a", notes={"gpu-uuid": f"GPU-n0-{gpu}"})
    assert stage.run() == ["x", "y"]
    gang(stage, "g", pods=2, compute=100, topology="nvlink")
    assert stage.run() == []
    stage.end("x")
    assert stage.run() == ["g0", "g1"]
    held = {gpu for uid in ("g0", "g1") for _, gpu in stage.picture.holdings.of(uid)}
    assert held == {"GPU-n0-0", "GPU-n0-1"}


def test_later_members_of_an_island_join_it() -> None:
    """An elastic gang has its minimum on one island; the next member waits for a card of it, whatever else is free."""
    stage = Stage(ONE, nodes=(4,))
    stage.picture.node_seen(make_node("n0", linked("n0", 4)))
    gang(stage, "g", pods=4, compute=60, topology="nvlink", **{"group-min": "2"})
    assert stage.run() == ["g0", "g1"]
    assert stage.run() == []
    (island,) = {gpu[-1] in "01" for uid in ("g0", "g1") for _, gpu in stage.picture.holdings.of(uid)}
    stage.end("g0")
    assert stage.run() == ["g2"]
    ((_, gpu),) = stage.picture.holdings.of("g2")
    assert (gpu[-1] in "01") is island


def test_a_gang_that_lies_apart_has_a_node_each() -> None:
    """Two nodes do for two pods and not for three, however many cards they have."""
    stage = Stage(ONE, nodes=(4, 4))
    gang(stage, "g", pods=3, compute=10, topology="spread")
    assert stage.run() == []
    gang(stage, "h", pods=2, compute=10, topology="spread")
    assert stage.run() == ["h0", "h1"]
    assert nodes_of(stage, "h0", "h1") == ["n0", "n1"]


def test_islands_are_what_nvlinks_reach() -> None:
    """Also by way of another; who has none is alone."""
    made = linked("n", 4, pairs=3)
    assert islands(made) == [("GPU-n-0", "GPU-n-1", "GPU-n-2"), ("GPU-n-3",)]
    assert islands([]) == []


@pytest.mark.parametrize("how", ["fails", "loses its turn"])
def test_a_gang_that_can_not_run_is_sent_back(how: str) -> None:
    """After a minute with too few members, while others of it wait or have failed; not before, and nobody else."""
    stage = Stage(ONE, nodes=(4,), settings=QueueSettings(stale_gang=60.0))
    gang(stage, "g", pods=2, compute=100, topology="")
    stage.submit("x", 100, queue="a")
    assert stage.round() == ["g0", "g1", "x"]
    stage.bind("g0", "x")
    if how == "fails":
        stage.bind("g1")
        pod = stage.pods["g1"]
        stage.see(replace(pod, status=replace(pod.status, phase="Failed")))
    else:
        assert stage.round(after=31.0) == []
        # Its room was taken by another meanwhile.
        stage.submit("y", 250, queue="a", notes={"gpus": "3"})
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert stage.queues.stale_gangs(now=stage.now + 59.0) == []
    assert [pod.metadata.uid for pod in stage.queues.stale_gangs(now=stage.now + 60.0)] == ["g0"]
    stage.gone("g0")
    assert stage.queues.stale_gangs(now=stage.now + 60.0) == []


def test_a_gang_that_has_begun_to_finish_is_left_alone() -> None:
    """A member that has succeeded counts as one that is there."""
    stage = Stage(ONE, nodes=(4,))
    gang(stage, "g", pods=3, compute=100, topology="", **{"group-min": "2"})
    assert stage.run() == ["g0", "g1", "g2"]
    stage.end("g0")
    failed = replace(stage.pods["g1"], status=replace(stage.pods["g1"].status, phase="Failed"))
    stage.see(failed)
    stage.gone("g1")
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert stage.queues.stale_gangs(now=stage.now + 1_000.0) == []


def test_a_gang_that_is_not_there_keeps_nothing_from_others() -> None:
    """Its guarantee is lent until so many of it wait that it could start; from then on it is kept for the gang."""
    queues = {"a": queue(guarantee=100), "b": queue()}
    stage = Stage(queues, nodes=(1,))
    notes = {"group-size": "2"}
    stage.submit("g0", 50, queue="a", group="g", notes=notes)
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]
    stage.submit("y", 100, queue="b")
    stage.submit("g1", 50, queue="a", group="g", notes=notes)
    stage.end("x")
    assert stage.run() == ["g0", "g1"]
    stage.end("g0", "g1")
    assert stage.run() == ["y"]


def test_a_gang_that_lost_a_waiting_member_keeps_nothing_either() -> None:
    """One is deleted while it waits: what is left can't start, so it asks for nothing."""
    queues = {"p": queue(limit=100), "a": queue("p", guarantee=100), "b": queue("p", limit=100)}
    stage = Stage(queues, nodes=(2,))
    notes = {"group-size": "2"}
    for number in range(2):
        stage.submit(f"g{number}", 50, queue="a", group="g", notes=notes)
    assert stage.queues.books.ledger.accounts["a"].asked[0] == 100
    stage.gone("g1")
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]


NEVER: dict[str, tuple[dict[str, str], int, int, int | None, str]] = {
    "over a limit": (
        {"group-topology": ""},
        3,
        100,
        200,
        "which ask 300 % of compute, more than the 200 % that",
    ),
    "never taken back, beyond a guarantee": (
        {"group-topology": "", "preemptible": "false"},
        2,
        100,
        None,
        "which ask 200 % of compute never to be taken back, and queue a is guaranteed 150 %",
    ),
    "larger than any node": (
        {"group-topology": "node"},
        3,
        100,
        None,
        "which ask on one node 300 % of compute, of which at most 200 % are there",
    ),
    "larger than any island": (
        {"group-topology": "nvlink"},
        2,
        100,
        None,
        "that NVLinks join 200 % of compute, of which at most 100 % are there",
    ),
    "one pod, larger than any island": (
        {"group-topology": "nvlink"},
        1,
        200,
        None,
        "its group starts with 1 pod, which asks on ",
    ),
    "on more nodes than there are": (
        {"group-topology": "spread"},
        3,
        10,
        None,
        "with 3 pods on a node each, and 2 could take them",
    ),
    "in pieces that no two share a card": (
        {"group-topology": ""},
        5,
        60,
        None,
        "which ask on all nodes together slices that can't be cut and need 5 GPUs, of which at most 4 are there",
    ),
    "in pieces of which two share a card": (
        {"group-topology": "node"},
        5,
        40,
        None,
        "which ask on one node slices that can't be cut and need 3 GPUs, of which at most 2 are there",
    ),
    "larger than all": (
        {"group-topology": ""},
        5,
        100,
        None,
        "which ask on all nodes together 500 % of compute, of which at most 400 % are there",
    ),
}


@pytest.mark.parametrize("row", NEVER)
def test_a_gang_that_can_never_start_asks_for_nothing_and_is_told_why(row: str) -> None:
    """Its queue's guarantee is lent to others meanwhile, and it hears the true numbers, as `aliquot explain` does."""
    notes, pods, compute, limit, why = NEVER[row]
    stage = Stage({"a": queue(guarantee=150, limit=limit), "b": queue()}, nodes=(2, 2))
    for number in range(pods):
        stage.submit(f"g{number}", compute, queue="a", group="g", notes={"group-size": str(pods), **notes})
    assert stage.queues.books.ledger.held_back(0) == 0
    for number in range(4):
        stage.submit(f"x{number}", 100, queue="b")
    assert stage.run() == ["x0", "x1", "x2", "x3"]
    for waiter in stage.queues.waiting():
        notice = stage.queues.notice(waiter)
        assert notice.reason == "NeverFits"
        assert why in notice.message
        assert stage.queues.why_not(waiter.pod) == notice.message


@pytest.mark.parametrize(("topology", "later"), [("node", (3,)), ("spread", (1, 1)), ("nvlink", (3,)), ("", (1, 1))])
def test_a_gang_that_could_not_start_does_once_there_is_other_hardware(topology: str, later: tuple[int, ...]) -> None:
    """A larger node, a larger island, one node more: nobody has to submit it again."""
    stage = Stage({"a": queue(guarantee=300)}, nodes=(2,))
    gang(stage, "g", pods=3, compute=100, topology=topology)
    assert stage.run() == []
    assert {stage.queues.notice(waiter).reason for waiter in stage.queues.waiting()} == {"NeverFits"}
    for at, count in enumerate(later, 1):
        stage.picture.node_seen(make_node(f"n{at}", linked(f"n{at}", count, pairs=count)))
    assert stage.run() == ["g0", "g1", "g2"]


def test_a_gang_whose_larger_node_goes_holds_nothing_back_any_more() -> None:
    """It asked for the guarantee while it could start."""
    stage = Stage({"a": queue(guarantee=300), "b": queue()}, nodes=(3, 2))
    stage.submit("x", 10, queue="b", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run() == ["x"]
    gang(stage, "g", pods=3, compute=100, topology="node")
    stage.round()
    assert stage.queues.books.ledger.held_back(0) == 300
    stage.picture.node_seen(make_node("n0", gpus("n0", 2)))
    stage.round()
    assert stage.queues.books.ledger.held_back(0) == 0


def test_a_gang_whose_first_pods_are_in_another_queue_starts_with_those_that_wait() -> None:
    """Their namespace moved meanwhile: what is asked, and who is looked at next, counts who of it is in anywhere."""
    stage = Stage({"a": queue(), "b": queue(guarantee=200)}, nodes=(4,))
    stage.queues.namespace_seen("team", queue="a")
    for number in range(2):
        stage.submit(f"g{number}", 100, group="g", notes={"group-size": "3", "group-min": "2"})
    assert stage.round() == ["g0", "g1"]
    stage.queues.namespace_seen("team", queue="b")
    stage.submit("g2", 100, group="g", notes={"group-size": "3", "group-min": "2"})
    ledger = stage.queues.books.ledger
    assert ledger.accounts["b"].asked[0] == 100
    stage.gone("g0")
    stage.gone("g1")
    assert ledger.accounts["b"].asked[0] == 0


def told_of(stage: Stage, uid: str) -> str:
    """The word and the sentence of one that waits."""
    (notice,) = [stage.queues.notice(waiter) for waiter in stage.queues.waiting() if waiter.uid == uid]
    return f"{notice.reason}: {notice.message}"


def says(stage: Stage, *uids: str, size: int, least: int | None = None) -> None:
    """Submit pods of one group that say this of it."""
    for uid in uids:
        notes = {"group-size": str(size), "group-min": str(least or size)}
        stage.submit(uid, 20, queue="a", group="g", notes=notes)


@pytest.mark.parametrize("order", [("old", "odd"), ("odd", "old")])
@pytest.mark.parametrize(("agreed", "least", "odd"), [(2, 2, 5), (2, 2, 3), (5, 1, 5), (4, 2, 3)])
def test_who_disagrees_about_a_gang_is_not_let_in_with_it(
    order: tuple[str, str], agreed: int, least: int, odd: int
) -> None:
    """Those who agree and are enough start, whoever is older; the odd one waits, at once and later, and is told."""
    stage = Stage(ONE, nodes=(4,))
    for which in order:
        if which == "old":
            says(stage, "x0", "x1", size=agreed, least=least)
        else:
            says(stage, "y", size=odd)
    assert sorted(stage.run()) == ["x0", "x1"]
    assert stage.run() == []
    said = {f"2 say {least} of {agreed}", f"1 says {odd} of {odd}"}
    word, sentence = told_of(stage, "y").split(": ", 1)
    assert word == "GangDisagrees"
    assert set(sentence.split("start: ")[1].split(";")[0].split(", ")) == said


def test_a_gang_of_one_takes_nobody_in_who_waits_for_more() -> None:
    """Nor does the later one come in once it is looked at alone; when the first one has gone it lacks pods instead."""
    stage = Stage(ONE, nodes=(4,))
    says(stage, "x", size=1)
    assert stage.run() == ["x"]
    says(stage, "y", size=2)
    assert stage.run() == []
    assert told_of(stage, "y").startswith(
        "GangDisagrees: pods of group g disagree about how many start: 1 says 1 of 1, 1 "
    )
    assert told_of(stage, "y").endswith(" on those that wait as on those that run, or start the group anew")
    stage.end("x")
    assert stage.run() == []
    assert told_of(stage, "y").startswith("GangIncomplete: group g starts with 2 pods, and 1 is there")


def test_who_says_less_later_does_not_come_in_as_one_more() -> None:
    """Of a gang of three that runs, a fourth that says two waits; it comes in with another that says the same."""
    stage = Stage(ONE, nodes=(4,))
    says(stage, "x0", "x1", "x2", size=3)
    assert stage.run() == ["x0", "x1", "x2"]
    says(stage, "y0", size=2)
    assert stage.run() == []
    assert told_of(stage, "y0").startswith("GangDisagrees: ")
    says(stage, "y1", size=2)
    assert stage.run() == ["y0", "y1"]


def test_who_is_made_to_agree_comes_in_with_its_gang() -> None:
    """Its annotation is written anew while it waits."""
    stage = Stage(ONE, nodes=(4,))
    says(stage, "x0", "x1", size=4, least=2)
    says(stage, "y", size=3)
    assert stage.run() == ["x0", "x1"]
    pod = stage.pods["y"]
    notes = dict(stage.pods["x0"].metadata.annotations)
    stage.see(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
    assert stage.run() == ["y"]


@pytest.mark.parametrize("least", [1, 4, 30])
def test_one_pod_more_of_a_group_is_counted_by_itself(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of it wait: what the others ask is not taken back and asked again, as it took 12 ms at 800."""
    stage = Stage({"a": queue(guarantee=400)}, nodes=(8,) * 16)
    notes = {"group-size": "90", "group-min": str(least)}
    for number in range(60):
        stage.submit(f"m{number:02}", 400, queue="a", group="m", notes=notes)
    told: list[tuple[str, int]] = []
    ask, ask_no_more = Ledger.ask, Ledger.ask_no_more

    def comes(ledger: Ledger, where: str, asked: Ask) -> None:
        told.append(("asks", asked.amounts[COMPUTE]))
        ask(ledger, where, asked)

    def goes(ledger: Ledger, where: str, asked: Ask) -> None:
        told.append(("no more", asked.amounts[COMPUTE]))
        ask_no_more(ledger, where, asked)

    monkeypatch.setattr(Ledger, "ask", comes)
    monkeypatch.setattr(Ledger, "ask_no_more", goes)
    before = list(stage.queues.books.ledger.accounts["a"].asked)
    stage.submit("late", 400, queue="a", group="m", notes=notes)
    assert told == [("asks", 400)]
    stage.gone("late")
    assert told == [("asks", 400), ("no more", 400)]
    # Of those with whom it starts another one goes along.
    told.clear()
    stage.gone("m00")
    assert len(told) <= 3
    assert stage.queues.books.ledger.accounts["a"].asked[COMPUTE] == before[COMPUTE] - 400


@pytest.mark.parametrize("least", [2, 3])
def test_who_was_the_first_of_a_group_asks_for_itself_when_older_ones_come_before_it(least: int) -> None:
    """Those of another Job, which was whole until one of its pods was deleted, wait with it from then on."""
    stage = Stage({"a": queue(guarantee=400)}, nodes=(8,))
    notes = {"group-size": "3", "group-min": str(least)}
    for maker, count in (("j", 3), ("k", 2)):
        for number in range(count):
            stage.submit(f"{maker}{number}", 100, queue="a", group="g", notes=notes, made_by=maker)
    asked = stage.queues.books.ledger.accounts["a"].asked
    assert asked[COMPUTE] == (500 if least == 2 else 300)
    stage.gone("j2")
    assert asked[COMPUTE] == 400
