"""Scenarios in which pods have to go for others, as tables; on four cards, by the core and in a real cluster."""

from __future__ import annotations

from collections.abc import Mapping

from support.queue_scenarios import Pods, Scenario, Step

SURPLUS: Mapping[str, str] = {"group-size": "4", "group-min": "2"}
NEARLY_WHOLE: Mapping[str, str] = {"group-size": "4", "group-min": "3"}


def cards(queue: str, count: int, *, priority: int = 0) -> list[Pods]:
    """Pods of a card each."""
    return [Pods(queue=queue, count=count, compute=100, priority=priority)]


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
)
