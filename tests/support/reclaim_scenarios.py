"""Scenarios in which pods have to go for others, as tables; on four cards, by the core and in a real cluster."""

from __future__ import annotations

from collections.abc import Mapping

from support.queue_scenarios import Pods, Scenario, Step

SURPLUS: Mapping[str, str] = {"group-size": "4", "group-min": "2"}
SPREAD: Mapping[str, str] = {"placement": "spread"}
NEARLY_WHOLE: Mapping[str, str] = {"group-size": "4", "group-min": "3"}


def cards(queue: str, count: int, *, priority: int = 0) -> list[Pods]:
    """Pods of a card each."""
    return [Pods(queue=queue, count=count, compute=100, priority=priority)]


def apart(compute: int, memory: int) -> Pods:
    """Two small pods of a job's, each on a card of its own as long as there is one."""
    return Pods(queue="blue", count=2, compute=compute, memory=memory, notes=SPREAD, by="job")


def group(notes: Mapping[str, str]) -> list[Pods]:
    """Four pods of blue's that take all there is."""
    return [Pods(queue="blue", count=4, compute=100, gang="job", notes=notes)]


RECLAIMS = (
    Scenario(
        name="an owner takes back what it lent, and no more",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(submit=cards("blue", 4), held={"blue": 400}),
            Step(submit=cards("red", 3), goes={"blue": 2}, held={"red": 200, "blue": 200}, waiting={"red": 1}),
            # Whoever else comes waits behind: nobody goes to and fro.
            Step(submit=cards("blue", 1), held={"red": 200, "blue": 200}, waiting={"red": 1, "blue": 1}),
            Step(end={"red": 1}, held={"red": 200, "blue": 200}, waiting={"red": 0, "blue": 1}),
        ],
    ),
    Scenario(
        name="what a group has beyond its minimum goes pod by pod",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(submit=group(SURPLUS), held={"blue": 400}),
            Step(submit=cards("red", 1), goes={"blue": 1}, held={"red": 100, "blue": 300}),
            Step(submit=cards("red", 1), goes={"blue": 1}, held={"red": 200, "blue": 200}),
            # Beyond its guarantee, so nobody goes: who waits has its turn when others end.
            Step(submit=cards("red", 1), held={"red": 200, "blue": 200}, waiting={"red": 1}),
            Step(end={"red": 1}, held={"red": 200, "blue": 200}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="a group that would be below its minimum goes as a whole",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(submit=group(NEARLY_WHOLE), held={"blue": 400}),
            Step(submit=cards("red", 1), goes={"blue": 1}, held={"red": 100, "blue": 300}),
            Step(submit=cards("red", 1), goes={"blue": 3}, held={"red": 200, "blue": 0}),
        ],
    ),
    Scenario(
        # What it was guaranteed and used is borrowed from then on.
        name="a guarantee that shrinks below its use is taken back for who is guaranteed it now",
        queues={"red": {"compute": {"guarantee": 400}}, "blue": {}},
        steps=[
            Step(submit=cards("red", 5), held={"red": 400}, waiting={"red": 1}),
            Step(
                says={"red": {"compute": {"guarantee": 100}}, "blue": {"compute": {"guarantee": 200}}},
                held={"red": 400},
                waiting={"red": 1},
            ),
            Step(
                submit=cards("blue", 3), goes={"red": 2}, held={"red": 200, "blue": 200}, waiting={"red": 1, "blue": 1}
            ),
        ],
    ),
    Scenario(
        name="lower priority of the same user goes where the queue says so",
        queues={"red": {"preemption": {"withinQueue": "SameUser"}}},
        steps=[
            Step(submit=cards("red", 4), held={"red": 400}),
            # An equal waits.
            Step(submit=cards("red", 1), held={"red": 400}, waiting={"red": 1}),
            Step(submit=cards("red", 1, priority=10), goes={"red": 1}, held={"red": 400}, waiting={"red": 1}),
            Step(submit=cards("red", 2, priority=10), goes={"red": 2}, held={"red": 400}, waiting={"red": 1}),
        ],
    ),
    Scenario(
        name="priority orders the line alone where the queue says nothing",
        queues={"red": {}},
        steps=[
            Step(submit=cards("red", 4), held={"red": 400}),
            Step(submit=cards("red", 1), held={"red": 400}, waiting={"red": 1}),
            Step(submit=cards("red", 1, priority=10), held={"red": 400}, waiting={"red": 2}),
            Step(end={"red": 1}, held={"red": 400}, waiting={"red": 1}),
        ],
    ),
    Scenario(
        name="who ignores that it is to go keeps its card for its grace, and then it is for whom it was freed",
        queues={"red": {"preemption": {"withinQueue": "SameUser"}}, "blue": {}},
        steps=[
            Step(submit=cards("red", 4), held={"red": 400}),
            Step(submit=cards("red", 1, priority=10), ignores={"red": 1}, held={"red": 400}, waiting={"red": 1}),
            # It has nothing, and would come first.
            Step(submit=cards("blue", 1), held={"red": 400, "blue": 0}, waiting={"red": 1, "blue": 1}),
            Step(kills=True, held={"red": 400, "blue": 0}, waiting={"red": 0, "blue": 1}),
        ],
    ),
    Scenario(
        # Of the two with much memory neither has room beside the other, so that three cards are never free.
        name="pods are moved where each has a place again, and nobody where one of them has none",
        # Of equals the first by name is looked at first.
        queues={"amber": {}, "blue": {}, "red": {}},
        steps=[
            Step(submit=[apart(4, 60_000), apart(2, 15_000)], held={"blue": 12}),
            Step(
                ran=["blue"],
                submit=[Pods(queue="amber", count=1, compute=300), Pods(queue="red", count=1, compute=200)],
                goes={"blue": 2},
                held={"amber": 0, "red": 200, "blue": 8},
                waiting={"amber": 1, "red": 0},
            ),
            # What is left of both cards is kept for those who come again.
            Step(
                submit=[Pods(queue="amber", count=2, compute=95)],
                held={"amber": 0, "red": 200, "blue": 8},
                waiting={"amber": 3},
            ),
            Step(
                submit=[apart(2, 15_000)],
                held={"amber": 0, "red": 200, "blue": 12},
                waiting={"amber": 3, "blue": 0},
            ),
        ],
    ),
)

PAIR = Pods(queue="red", count=2, compute=100, gang="pair", notes={"group-size": "2", "group-topology": "spread"})

# By the core alone: before a real cluster these are tests of their own (tests/cluster/queues/test_reclaim_faults.py).
MEANWHILE = (
    Scenario(
        name="an owner that is deleted meanwhile leaves its room to the next, and nobody else is asked",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(submit=cards("blue", 4), held={"blue": 400}),
            Step(submit=cards("red", 1), ignores={"blue": 1}, held={"red": 0, "blue": 400}, waiting={"red": 1}),
            Step(
                deletes={"red": 1},
                submit=cards("blue", 1),
                held={"red": 0, "blue": 400},
                waiting={"red": 0, "blue": 1},
            ),
            Step(kills=True, held={"red": 0, "blue": 400}, waiting={"blue": 0}),
            Step(submit=cards("red", 1), goes={"blue": 1}, held={"red": 100, "blue": 300}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="a node that is lost calls a plan off: a pair that wants a node each waits, and nobody more goes for it",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        spare=1,
        steps=[
            Step(submit=cards("blue", 5), held={"blue": 500}),
            Step(submit=[PAIR], ignores={"blue": 2}, held={"red": 0, "blue": 500}, waiting={"red": 2}),
            Step(loses=True, held={"red": 0, "blue": 400}, waiting={"red": 2}),
            # The other victim goes all the same, and what it leaves is for whoever can use it.
            Step(kills=True, submit=cards("blue", 1), held={"red": 0, "blue": 400}, waiting={"red": 2, "blue": 0}),
            Step(returns=True, goes={"blue": 1}, held={"red": 200, "blue": 300}, waiting={"red": 0}),
        ],
    ),
)
