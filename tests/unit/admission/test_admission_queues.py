"""Which changes of queues the webhook refuses: those that the tree can't bear, and no step that mends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.objects import Queue
from aliquot_scheduler.admission.review import MalformedReviewError
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.entry import specs_of
from support.admitting import Json, answered, container, queue_review, review, written
from support.queue_admission import ORG, Told, admission, of_queue, plan

REFUSED: dict[str, tuple[str, Any, str]] = {
    "no such parent": ("c", {"parent": "gone"}, "queue c, spec.parent: there is no queue 'gone'; create it"),
    "its own parent": ("c", {"parent": "c"}, "circle: c → c"),
    "a circle": ("org", {"parent": "a"}, "circle: org → a → org"),
    "children above the limit": (
        "c",
        {"parent": "org", "compute": {"guarantee": 200}},
        (
            "queue org, spec.compute: its children are guaranteed 900 (a 400 + b 300 + c 200), more than its own limit "
            "of 800; raise the limit to 900, or guarantee the children less"
        ),
    ),
    "the limit lowered": ("org", {"compute": {"limit": 600}}, "children are guaranteed 700 (a 400 + b 300)"),
    "limit below guarantee": ("c", {"compute": {"guarantee": 5, "limit": 4}}, "5 is more than its own limit of 4"),
    "more lent than there is": (
        "c",
        {"compute": {"guarantee": 5, "lendingLimit": 6}},
        "lendingLimit 6 is above guarantee 5; write at most 5",
    ),
    "of a model": (
        "c",
        {"models": {"A100*": {"memory": {"guarantee": 5, "limit": 4}}}},
        "queue c, spec.models[A100*].memory: guarantee 5 is more than its own limit of 4",
    ),
    "an unknown field": ("c", {"compute": {"limt": 5}}, "unknown field 'limt'; did you mean limit?"),
    "a field of what it may have of GPUs": (
        "c",
        {"limit": 5},
        "unknown field 'limit'; write limit below compute or memory",
    ),
    "a text for a number": (
        "c",
        {"memory": {"limit": "10Gi"}},
        (
            'queue c, spec.memory.limit: "10Gi" will not do; write a whole number from 0 to 1000000000000, '
            "without a unit or quotes; or leave it out"
        ),
    ),
    "a word that is not known": (
        "c",
        {"stop": "pause"},
        '"pause" will not do; write one of hold, drain; or leave it out',
    ),
    "a word in another case": (
        "c",
        {"preemption": {"withinQueue": "sameuser"}},
        "write one of SameUser, AnyUser, Never",
    ),
    "yes": ("c", {"autoscale": "yes"}, 'spec.autoscale: "yes" will not do; write true or false; or leave it out'),
    "true for a number": (
        "c",
        {"compute": {"weight": True}},
        "spec.compute.weight: true will not do; write a whole number",
    ),
    "nothing for a parent": ("c", {"parent": None}, "spec.parent: null will not do; write a name of a-z"),
    "one namespace and no list": ("c", {"namespaces": "team"}, "write a list, each of it a text"),
    "a core that is true": ("c", {"hosts": {"cpu": True}}, "true will not do; write a text or a whole number"),
    "no list for models": ("c", {"models": ["H100"]}, '["H100"] will not do; write an object'),
    "a model without a name": (
        "c",
        {"models": {"": {"compute": {"limit": 5}}}},
        (
            "queue c, spec.models: \"\" is no pattern of a model; name one such as '*H100*'; "
            "what is said of all GPUs stands below compute and memory"
        ),
    ),
    "all models but some": (
        "c",
        {"models": {"!*H100*": {"compute": {"limit": 5}}}},
        (
            'queue c, spec.models: "!*H100*" is no pattern of a model; write an entry for each model that it is said '
            "of: '*H100*': {...}; there are no lists, and no '!'"
        ),
    ),
    "a list of models": (
        "c",
        {"models": {"*H100*,*A100*": {"compute": {"limit": 5}}}},
        "is no pattern of a model; write an entry for each model that it is said of",
    ),
    "no quantity": ("c", {"hosts": {"cpu": "many"}}, "queue c, spec.hosts.cpu: 'many' is no quantity"),
    "queues below it": ("org", None, "queues hang below it: a, b; delete them first, or give them another parent"),
}


@pytest.mark.parametrize("row", REFUSED)
async def test_what_the_tree_can_t_bear_is_refused(row: str) -> None:
    """With what, where, and what to do."""
    name, spec, sentence = REFUSED[row]
    answer = await of_queue(ORG, name, spec)
    assert answer["allowed"] is False
    assert sentence in answer["status"]["message"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({}, True),
        ({"compute": {"guarantee": 100}}, True),
        ({"compute": {"limit": 100}}, False),
        ({"memory": {"limit": 0}}, False),
        ({"compute": {"weight": 0}}, False),
        ({"stop": "hold"}, False),
        ({"models": {"*A100*": {"compute": {"limit": 100}}}}, False),
        ({"parent": "org"}, False),
    ],
)
async def test_the_default_queue_is_not_deleted_while_it_keeps_somebody_out(spec: Json, *, allowed: bool) -> None:
    """Without it all come in who name none: replaced by force, it would let in all whom it held."""
    tree = {"org": {"stop": "drain"}, "default": spec}
    answer = await of_queue(tree, "default", None)
    assert answer["allowed"] is allowed
    assert allowed or "come in by a default one of no limits" in answer["status"]["message"]
    # Of any other queue it is nobody's way in.
    assert (await of_queue({**tree, "own": spec}, "own", None))["allowed"] is True


async def test_a_broken_tree_is_mended_step_by_step() -> None:
    """What was wrong at the same place before does not forbid a change; what it breaks anew does."""
    broken = {"x": {"compute": {"guarantee": 9, "limit": 8}}, "y": {"parent": "gone"}}
    answer = await of_queue(broken, "y", {})
    assert (answer["allowed"], len(answer["warnings"])) == (True, 1)
    assert answer["warnings"][0].startswith("still: queue x, spec.compute: guarantee 9 is more than its own limit of 8")
    assert (await of_queue(broken, "y", {"memory": {"guarantee": 9, "limit": 8}}))["allowed"] is False
    assert (await of_queue(broken, "x", {"compute": {"guarantee": 9, "limit": 9}}))["allowed"] is True


MADE_WORSE: dict[str, tuple[str, Mapping[str, Any]]] = {
    "more of the same": ("b", {"parent": "org", "compute": {"guarantee": 301}}),
    "something else at the same place": ("org", {"compute": {"guarantee": 400, "limit": 399}}),
}


@pytest.mark.parametrize("row", MADE_WORSE)
async def test_a_broken_tree_is_not_made_worse(row: str) -> None:
    """Where something is wrong already, neither more of it nor another thing is let through."""
    child = {"parent": "org", "compute": {"guarantee": 300}}
    broken = {"org": {"compute": {"guarantee": 400}}, "a": child, "b": child}
    assert (await of_queue(broken, *MADE_WORSE[row]))["allowed"] is False
    lessened = await of_queue(broken, "b", {"parent": "org", "compute": {"guarantee": 200}})
    assert (lessened["allowed"], len(lessened["warnings"])) == (True, 1)


def test_a_queue_in_a_pod_s_place_is_malformed() -> None:
    """And no other exception leaves the code."""
    told = Told(heard=None, now=plan({}))
    for body in (b"", queue_review("a", {}).replace(b'"Queue"', b'"Pod"'), review(written(container()))):
        with pytest.raises(MalformedReviewError):
            admission(told).validating_queue(body).send(None)


NAMED = st.sampled_from(["a", "b", "c", "d"])
COUNTS = st.integers(0, 3)
QUOTAS = st.fixed_dictionaries({}, optional={"guarantee": COUNTS, "limit": COUNTS, "lendingLimit": COUNTS})
TREES = st.dictionaries(
    NAMED, st.fixed_dictionaries({}, optional={"parent": NAMED, "compute": QUOTAS, "memory": QUOTAS})
)
CHANGES = st.lists(st.tuples(NAMED, st.none() | TREES.map(lambda tree: tree.get("a", {}))), max_size=8)


@given(changes=CHANGES)
def test_changes_that_are_let_in_leave_no_contradiction(changes: list[tuple[str, Any]]) -> None:
    """Whatever is tried one after the other, from an empty tree on."""
    queues: dict[str, Any] = {}
    for name, spec in changes:
        body = queue_review(name, spec, old=queues.get(name))
        told = Told(heard=None, now=plan(queues))
        try:
            admission(told).validating_queue(body).send(None)
        except StopIteration as done:
            if answered(done.value)["allowed"] and spec is None:
                queues.pop(name, None)
            elif answered(json.dumps(json.loads(done.value)).encode())["allowed"]:
                queues[name] = spec
        objects = [msgspec.convert({"metadata": {"name": key}, "spec": value}, Queue) for key, value in queues.items()]
        assert problems_of(specs_of(objects)) == []
