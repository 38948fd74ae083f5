"""Scenarios of queues as tables: what is submitted and ended, and what each queue then holds and lets wait.

They are run against the pure core, and against the real centre in a real cluster with played cards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot_core.problems import Problems
from aliquot_scheduler.queues.said.spec import QueueSpec, read_queue

Spec = Mapping[str, Any]


# So long those have run who have run for a while: whoever has run for less than ten minutes is not moved.
A_QUARTER_OF_AN_HOUR = 900.0


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one queue, named by it and counted on."""

    queue: str
    count: int
    compute: int
    memory: int = 1000
    gang: str = ""
    notes: Mapping[str, str] = {}
    priority: int = 0
    # Who makes another when one of them is gone.
    by: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Who is submitted, how many of a queue's running pods end or have to go, and what is so then: held, waiting.

    Before that, queues that say something else from now on; without a word they are deleted. And queues whose pods have
    run for a while, by what Kubernetes says of them.
    """

    says: Mapping[str, Spec | None] = {}
    ran: Sequence[str] = ()
    submit: Sequence[Pods] = ()
    end: Mapping[str, int] = {}
    goes: Mapping[str, int] = {}
    # Of those who were asked to go and are there still, how many come to it by this step, and whether all are killed
    # at its beginning, since their time is over.
    ignores: Mapping[str, int] = {}
    kills: bool = False
    # How many of those who wait are deleted at its beginning; whether the spare node is lost then, or comes back.
    deletes: Mapping[str, int] = {}
    loses: bool = False
    returns: bool = False
    held: Mapping[str, int]
    waiting: Mapping[str, int] = {}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """On four cards, and so many of a spare node."""

    name: str
    queues: Mapping[str, Spec]
    steps: Sequence[Step]
    spare: int = 0


def said_now(said: Mapping[str, Spec], step: Step) -> dict[str, Spec]:
    """What all queues say from that step on."""
    return {name: spec for name, spec in {**said, **step.says}.items() if spec is not None}


def specs_of(said: Mapping[str, Spec]) -> dict[str, QueueSpec]:
    """The same as it is read; pods of all namespaces may name them."""
    problems = Problems()
    found = {
        name: read_queue({**spec, "namespaces": ["*"]}, name=name, problems=problems) for name, spec in said.items()
    }
    assert not problems.found
    return found


# Each small one fills a card with a large one.
_UNLIKE = [Pods(queue="red", count=2, compute=compute, gang="job", notes={"group-size": "4"}) for compute in (10, 90)]


def _each(**counts: int) -> list[Pods]:
    return [Pods(queue=queue, count=count, compute=100) for queue, count in counts.items()]


SCENARIOS = (
    Scenario(
        name="idle cards are lent, and given out again by share",
        queues={"red": {}, "blue": {}},
        steps=[
            Step(submit=_each(red=6), held={"red": 400}, waiting={"red": 2}),
            Step(submit=_each(blue=3), held={"red": 400, "blue": 0}, waiting={"red": 2, "blue": 3}),
            Step(end={"red": 2}, held={"red": 200, "blue": 200}, waiting={"red": 2, "blue": 1}),
        ],
    ),
    Scenario(
        name="a limit holds for all below it",
        queues={
            "org": {"compute": {"limit": 250}},
            "red": {"parent": "org", "compute": {"limit": 200}},
            "blue": {"parent": "org"},
        },
        steps=[
            Step(submit=_each(red=3), held={"red": 200}, waiting={"red": 1}),
            Step(
                submit=[Pods(queue="blue", count=2, compute=50)],
                held={"red": 200, "blue": 50},
                waiting={"red": 1, "blue": 1},
            ),
        ],
    ),
    Scenario(
        name="a hard reservation stays free",
        queues={"red": {"compute": {"guarantee": 100, "lendingLimit": 0}}, "blue": {}},
        steps=[
            Step(submit=_each(blue=5), held={"blue": 300}, waiting={"blue": 2}),
            Step(submit=_each(red=1), held={"red": 100, "blue": 300}, waiting={"blue": 2}),
        ],
    ),
    Scenario(
        # red's pod has no card as long as green lies on all four, and blue has borrowed under their parent's limit.
        name="what a limit leaves is kept for a guarantee below it",
        queues={
            "org": {"compute": {"limit": 140}},
            # Else green would have to go for it.
            "red": {"parent": "org", "compute": {"guarantee": 100}, "preemption": {"reclaim": "Never"}},
            "blue": {"parent": "org"},
            "green": {},
        },
        steps=[
            Step(submit=[Pods(queue="green", count=4, compute=60)], held={"green": 240}),
            Step(submit=[Pods(queue="blue", count=1, compute=40)], held={"blue": 40}),
            Step(submit=_each(red=1), held={"red": 0}, waiting={"red": 1}),
            Step(
                submit=[Pods(queue="blue", count=1, compute=20)],
                held={"red": 0, "blue": 40},
                waiting={"red": 1, "blue": 1},
            ),
            Step(end={"green": 2}, held={"red": 100, "blue": 40, "green": 120}, waiting={"red": 0, "blue": 1}),
        ],
    ),
    Scenario(
        # Its second pod is over a limit of compute, so no memory is kept for it.
        name="nothing is kept for whom a limit keeps out",
        queues={"red": {"compute": {"limit": 100}, "memory": {"guarantee": 160_000}}, "green": {}},
        steps=[
            Step(submit=_each(red=2), held={"red": 100}, waiting={"red": 1}),
            Step(submit=_each(green=4), held={"red": 100, "green": 300}, waiting={"red": 1, "green": 1}),
        ],
    ),
    Scenario(
        # It would have to borrow in any case: kept is what is never lent.
        name="of a guarantee no more is kept for whom it does not hold than it never lends",
        queues={"red": {"compute": {"guarantee": 200, "lendingLimit": 100}}, "green": {}},
        steps=[
            Step(submit=_each(green=2), held={"green": 200}),
            Step(submit=[Pods(queue="red", count=1, compute=300)], held={"red": 0}, waiting={"red": 1}),
            Step(submit=_each(green=2), held={"red": 0, "green": 300}, waiting={"red": 1, "green": 1}),
        ],
    ),
    Scenario(
        name="pods that are never evicted stay inside the guarantee",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(
                submit=[Pods(queue="red", count=3, compute=100, notes={"preemptible": "false"})],
                held={"red": 200},
                waiting={"red": 1},
            ),
            Step(submit=_each(blue=3), held={"red": 200, "blue": 200}, waiting={"red": 1, "blue": 1}),
        ],
    ),
    Scenario(
        name="a gang comes in whole",
        queues={"red": {}, "blue": {}},
        steps=[
            Step(submit=_each(blue=2), held={"blue": 200}),
            Step(
                submit=[Pods(queue="red", count=3, compute=100, gang="job", notes={"group-size": "3"})],
                held={"red": 0, "blue": 200},
                waiting={"red": 3},
            ),
            Step(end={"blue": 1}, held={"red": 300, "blue": 100}),
        ],
    ),
    Scenario(
        # One after the other, the two small ones would be laid on the card that is free, and no large one beside them.
        name="a gang of small and large pods is laid together, and not started in halves",
        queues={"red": {}, "blue": {}},
        steps=[
            Step(submit=_each(blue=3), held={"blue": 300}),
            Step(submit=_UNLIKE, held={"red": 0, "blue": 300}, waiting={"red": 4}),
            Step(end={"blue": 1}, held={"red": 200, "blue": 200}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="below its use a limit sends nobody away, and lets nobody in until enough have ended",
        queues={"red": {}, "blue": {}},
        steps=[
            Step(submit=_each(red=6), held={"red": 400}, waiting={"red": 2}),
            Step(says={"red": {"compute": {"limit": 200}}}, held={"red": 400}, waiting={"red": 2}),
            Step(end={"red": 2}, submit=_each(blue=1), held={"red": 200, "blue": 100}, waiting={"red": 2}),
            Step(end={"red": 1}, held={"red": 200, "blue": 100}, waiting={"red": 1}),
        ],
    ),
    Scenario(
        name="of a queue that is deleted who runs goes on, and who waits comes in once it is there again",
        queues={"red": {"compute": {"guarantee": 400}}, "blue": {}},
        steps=[
            Step(submit=_each(red=5), held={"red": 400}, waiting={"red": 1}),
            Step(says={"red": None}, submit=_each(blue=2), held={"red": 400}, waiting={"red": 1, "blue": 2}),
            # Nothing is kept for a queue that is gone.
            Step(end={"red": 2}, held={"red": 200, "blue": 200}, waiting={"red": 1, "blue": 0}),
            Step(end={"red": 1}, held={"red": 100, "blue": 200}, waiting={"red": 1}),
            Step(says={"red": {}}, held={"red": 200, "blue": 200}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="who waits in the last queue when that is deleted comes in nowhere, until it is there again",
        queues={"red": {"compute": {"limit": 100}}},
        steps=[
            Step(submit=_each(red=4), held={"red": 100}, waiting={"red": 3}),
            Step(says={"red": None}, held={"red": 100}, waiting={"red": 3}),
            Step(says={"red": {"stop": "hold"}}, held={"red": 100}, waiting={"red": 3}),
            Step(says={"red": {"compute": {"limit": 200}}}, held={"red": 200}, waiting={"red": 2}),
        ],
    ),
    Scenario(
        # Shown to a cluster autoscaler, and told as who waits: the third is over the limit beside the second.
        name="who is shown to an autoscaler waits, also when its queue is held, deleted, or there again",
        queues={"red": {"autoscale": True, "compute": {"limit": 600}}},
        steps=[
            Step(
                submit=[*_each(red=4), Pods(queue="red", count=2, compute=200, memory=2000)],
                held={"red": 400},
                waiting={},
            ),
            Step(says={"red": {"autoscale": True, "stop": "hold"}}, held={"red": 400}),
            Step(end={"red": 1}, held={"red": 300}),
            Step(says={"red": None}, held={"red": 300}),
            Step(says={"red": {"autoscale": True}}, end={"red": 1}, held={"red": 400}),
        ],
    ),
    Scenario(
        name="a queue that is held or drained sends nobody away, and lets nobody in until it is not any more",
        queues={"red": {"compute": {"limit": 200}}, "blue": {}},
        steps=[
            Step(submit=_each(red=3), held={"red": 200}, waiting={"red": 1}),
            Step(says={"red": {"stop": "hold"}}, submit=_each(red=1), held={"red": 200}, waiting={"red": 2}),
            Step(end={"red": 1}, submit=_each(blue=1), held={"red": 100, "blue": 100}, waiting={"red": 2}),
            Step(says={"red": {"stop": "drain"}}, held={"red": 100, "blue": 100}, waiting={"red": 2}),
            Step(says={"red": {"compute": {"limit": 400}}}, held={"red": 300, "blue": 100}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="what a queue that is moved holds counts for the limit of its new parent",
        queues={
            "old": {"compute": {"limit": 200}},
            "new": {"compute": {"limit": 300}},
            "red": {"parent": "old"},
            "blue": {"parent": "old"},
        },
        steps=[
            Step(submit=_each(red=4), held={"red": 200}, waiting={"red": 2}),
            Step(submit=_each(blue=1), held={"red": 200}, waiting={"red": 2, "blue": 1}),
            Step(says={"red": {"parent": "new"}}, held={"red": 300, "blue": 100}, waiting={"red": 1, "blue": 0}),
        ],
    ),
    Scenario(
        name="a gang that can never start keeps nothing from others",
        queues={"red": {"compute": {"guarantee": 200, "limit": 200}}, "blue": {}},
        steps=[
            Step(
                submit=[Pods(queue="red", count=3, compute=100, gang="job", notes={"group-size": "3"})],
                held={"red": 0},
                waiting={"red": 3},
            ),
            Step(submit=_each(blue=5), held={"red": 0, "blue": 400}, waiting={"red": 3, "blue": 1}),
        ],
    ),
    Scenario(
        name="a group apart for which there are too few nodes keeps nothing from others",
        queues={"red": {"compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(
                submit=[
                    Pods(
                        queue="red",
                        count=2,
                        compute=100,
                        gang="job",
                        notes={"group-size": "2", "group-topology": "spread"},
                    )
                ],
                held={"red": 0},
                waiting={"red": 2},
            ),
            Step(submit=_each(blue=5), held={"red": 0, "blue": 400}, waiting={"red": 2, "blue": 1}),
        ],
    ),
    Scenario(
        name="who can't come in beside what others keep keeps nothing from others",
        queues={
            "keeper": {"compute": {"guarantee": 200, "lendingLimit": 0}},
            "red": {"compute": {"guarantee": 300}},
            "blue": {},
        },
        steps=[
            Step(submit=[Pods(queue="red", count=1, compute=300)], held={"red": 0}, waiting={"red": 1}),
            Step(submit=_each(blue=3), held={"red": 0, "blue": 200}, waiting={"red": 1, "blue": 1}),
            Step(submit=_each(keeper=2), held={"keeper": 200, "blue": 200}, waiting={"red": 1, "blue": 1}),
        ],
    ),
    Scenario(
        # The gang needs all of the guarantee, and a part of that is in use: what is free would let it in not at all.
        name="a guarantee is lent until who waits would fit in it",
        queues={"red": {"compute": {"guarantee": 200}, "preemption": {"reclaim": "Never"}}, "blue": {}},
        steps=[
            Step(submit=[Pods(queue="red", count=1, compute=50)], held={"red": 50}),
            Step(
                submit=[Pods(queue="red", count=2, compute=100, gang="job", notes={"group-size": "2"})],
                # Three cards are free, and would be enough for it beyond its guarantee.
                held={"red": 250},
            ),
            Step(end={"red": 3}, held={"red": 0}),
            Step(submit=_each(blue=2), held={"blue": 200}),
            Step(submit=[Pods(queue="red", count=2, compute=60)], held={"red": 120, "blue": 200}),
            Step(
                submit=[Pods(queue="red", count=2, compute=100, gang="next", notes={"group-size": "2"})],
                held={"red": 120, "blue": 200},
                waiting={"red": 2},
            ),
            # Of red's guarantee 80 are missing, and its gang needs 200.
            Step(submit=[Pods(queue="blue", count=2, compute=40)], held={"red": 120, "blue": 280}),
            Step(end={"red": 2}, held={"red": 0, "blue": 280}, waiting={"red": 2}),
            # Now it would fit: nothing more is lent.
            Step(submit=[Pods(queue="blue", count=1, compute=60)], held={"blue": 280}, waiting={"red": 2, "blue": 1}),
            Step(end={"blue": 4}, held={"red": 200, "blue": 60}),
        ],
    ),
    Scenario(
        name="what is beyond guarantees goes by weight",
        # A whole GPU counts with all its memory, so both have to say it.
        queues={"red": {"compute": {"weight": 3}, "memory": {"weight": 3}}, "blue": {}, "green": {}},
        steps=[
            Step(submit=_each(green=4), held={"green": 400}),
            Step(submit=_each(red=4, blue=4), held={"red": 0, "blue": 0}, waiting={"red": 4, "blue": 4}),
            Step(end={"green": 4}, held={"red": 300, "blue": 100}, waiting={"red": 1, "blue": 3}),
        ],
    ),
    Scenario(
        name="the sibling of higher priority is served first",
        queues={"red": {"priority": 1}, "blue": {}, "green": {}},
        steps=[
            Step(submit=_each(green=4), held={"green": 400}),
            Step(submit=_each(blue=4, red=3), held={"red": 0, "blue": 0}, waiting={"red": 3, "blue": 4}),
            Step(end={"green": 4}, held={"red": 300, "blue": 100}, waiting={"red": 0, "blue": 3}),
        ],
    ),
    Scenario(
        name="for a held queue nothing is kept",
        queues={"org": {"stop": "hold"}, "red": {"parent": "org", "compute": {"guarantee": 200}}, "blue": {}},
        steps=[
            Step(submit=_each(red=2), held={"red": 0}, waiting={"red": 2}),
            Step(submit=_each(blue=5), held={"red": 0, "blue": 400}, waiting={"red": 2, "blue": 1}),
        ],
    ),
    Scenario(
        name="a limit of memory holds for pods of little compute",
        queues={"red": {"memory": {"limit": 5000}}, "blue": {}},
        steps=[
            Step(
                submit=[Pods(queue="red", count=3, compute=10, memory=2000)],
                held={"red": 20},
                waiting={"red": 1},
            ),
            Step(end={"red": 1}, held={"red": 20}, waiting={"red": 0}),
        ],
    ),
    Scenario(
        name="nobody borrows more than is said",
        queues={
            "red": {"compute": {"guarantee": 100, "borrowingLimit": 50}},
            "blue": {"compute": {"guarantee": 100, "weight": 0}},
        },
        steps=[
            Step(
                submit=[Pods(queue="red", count=4, compute=50), Pods(queue="blue", count=3, compute=50)],
                held={"red": 150, "blue": 100},
                waiting={"red": 1, "blue": 1},
            ),
        ],
    ),
    Scenario(
        name="a gang starts with its minimum, and the others follow",
        queues={"red": {}, "blue": {}},
        steps=[
            Step(submit=_each(blue=3), held={"blue": 300}),
            Step(
                submit=[
                    Pods(queue="red", count=3, compute=100, gang="job", notes={"group-size": "3", "group-min": "2"})
                ],
                held={"red": 0},
                waiting={"red": 3},
            ),
            Step(end={"blue": 1}, held={"red": 200, "blue": 200}, waiting={"red": 1}),
            Step(end={"blue": 1}, held={"red": 300, "blue": 100}, waiting={"red": 0}),
        ],
    ),
)
