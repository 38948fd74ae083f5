"""What the webhook says of queues, and of pods by the queues that there are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.objects import Namespace, Queue
from aliquot_kube.errors import ServerTroubleError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.review import MalformedReviewError
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.entry import Plan, plan_of, specs_of
from aliquot_scheduler.queues.said.oddities import oddities_of
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.admitting import NAMES, Json, answered, container, mutated, queue_review, review, written

Specs = Mapping[str, Any]


def plan(queues: Specs, homes: Mapping[str, str] | None = None) -> Plan:
    """A cluster's queues, and its namespaces' own."""
    return plan_of(
        [msgspec.convert({"metadata": {"name": name}, "spec": spec}, Queue) for name, spec in queues.items()],
        [
            msgspec.convert({"metadata": {"name": name, "labels": {NAMES.queue: queue}}}, Namespace)
            for name, queue in (homes or {}).items()
        ],
        names=NAMES,
    )


class Told:
    """What was heard, and what the API server would say."""

    def __init__(self, *, heard: Plan | None, now: Plan | None) -> None:
        self.heard, self.now = heard, now
        self.questions = 0

    def known(self) -> Plan | None:
        """By what was heard last."""
        return self.heard

    async def asked(self, namespace: str = "") -> Plan:
        """By what the API server says."""
        self.questions += 1
        if self.now is None:
            raise ServerTroubleError(f"asked for {namespace}", status=503)
        return self.now


def admission(told: Told) -> Admission:
    """A webhook that knows queues."""
    return Admission(names=NAMES, settings=AdmissionSettings(), plans=told)


async def of_queue(queues: Specs, name: str, spec: Any, homes: Mapping[str, str] | None = None, **more: Any) -> Json:
    """The answer to a change of one of these queues."""
    now = plan(queues, homes)
    return answered(
        await admission(Told(heard=None, now=now)).validating_queue(
            queue_review(name, spec, old=queues.get(name), **more)
        )
    )


# --- queues ----------------------------------------------------------------------------------------------------------
ORG = {
    "org": {"compute": {"limit": 800}},
    "a": {"parent": "org", "compute": {"guarantee": 400}},
    "b": {"parent": "org", "compute": {"guarantee": 300}},
}
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


CLOSED = (
    "queue c, spec.compute: none of it may be used, but pods that ask for memory alone come in all the same: "
    "write memory: {limit: 0} too, if they are not to"
)
WEIGHTLESS = (
    "queue c, spec.{}: none of it may be used: of weight 0 it borrows nothing, and it is guaranteed nothing; "
    "give it a weight or a guarantee, or write limit: 0 to close it"
)
UNTOLD = "its status is not written yet, so it is not known whether pods wait or run in it"
TAKEN: dict[str, tuple[str, Any, list[str]]] = {
    "a new one": ("c", {"parent": "org", "compute": {"guarantee": 100}}, []),
    "another parent": ("b", {"compute": {"guarantee": 300}}, []),
    "the root, by an empty name": ("b", {"parent": "", "compute": {"guarantee": 300}}, []),
    "a leaf goes": ("b", None, [UNTOLD]),
    "what is not there goes": ("gone", None, [UNTOLD]),
    "all numbers just as far as they go": (
        "c",
        {"parent": "org", "compute": {"guarantee": 100, "limit": 100, "lendingLimit": 100, "borrowingLimit": 0}},
        [],
    ),
    "the limit of its parent": ("c", {"parent": "org", "compute": {"limit": 800}}, []),
    "lending of nothing": (
        "c",
        {"compute": {"lendingLimit": 5}},
        ["queue c, spec.compute: lendingLimit does nothing: there is no guarantee to lend of"],
    ),
    "borrowing without weight": (
        "c",
        {"memory": {"weight": 0, "borrowingLimit": 5}},
        [
            "queue c, spec.memory: borrowingLimit 5 does nothing: a queue of weight 0 borrows nothing",
            WEIGHTLESS.format("memory"),
        ],
    ),
    "closed for compute by its limit": ("c", {"compute": {"limit": 0}}, [CLOSED]),
    "closed for compute by what it may borrow": ("c", {"compute": {"borrowingLimit": 0}}, [CLOSED]),
    "closed for compute by its weight": ("c", {"compute": {"weight": 0}}, [WEIGHTLESS.format("compute")]),
    "closed for both by weights": (
        "c",
        {"compute": {"weight": 0}, "memory": {"weight": 0}},
        [WEIGHTLESS.format("compute"), WEIGHTLESS.format("memory")],
    ),
    "GiB for MiB": (
        "c",
        {"memory": {"limit": 80}, "models": {"A100*": {"memory": {"guarantee": 10}}}},
        [
            "queue c, spec.memory: limit 80 is 80 MiB; write 81920 if so many GiB were meant",
            "queue c, spec.models[A100*].memory: guarantee 10 is 10 MiB; write 10240 if so many GiB were meant",
        ],
    ),
    "a GiB": ("c", {"memory": {"limit": 1024}}, []),
    "GPUs for percent": (
        "c",
        {"compute": {"guarantee": 8}},
        ["queue c, spec.compute: guarantee 8 is 8 % of one GPU; write 800 if so many whole ones were meant"],
    ),
    "a tenth of a GPU": ("c", {"compute": {"guarantee": 10}}, []),
    "closed for both": ("c", {"compute": {"limit": 0}, "memory": {"limit": 0}}, []),
    "closed for both by two words": ("c", {"compute": {"limit": 0}, "memory": {"weight": 0}}, []),
    "its guarantee is all it has": ("c", {"compute": {"guarantee": 50, "weight": 0}}, []),
    "closed for a model's compute": (
        "c",
        {"models": {"A100*": {"compute": {"limit": 0}}}},
        [
            (
                "queue c, spec.models[A100*].compute: none of it may be used, but pods that ask for memory alone come "
                "in all the same: write models: {'A100*': {memory: {limit: 0}}} too, if they are not to"
            )
        ],
    ),
    "closed for a model": ("c", {"models": {"A100*": {"compute": {"limit": 0}, "memory": {"limit": 0}}}}, []),
    "closed for all compute, a model's too": (
        "c",
        {"compute": {"limit": 0}, "models": {"A100*": {"compute": {"limit": 0}}}},
        [CLOSED],
    ),
    "borrowing beyond the limit": (
        "c",
        {"compute": {"guarantee": 50, "limit": 60, "borrowingLimit": 20}},
        ["queue c, spec.compute: borrowingLimit would allow 70 in all, but limit 60 comes before that"],
    ),
    "a limit above the parent's": (
        "c",
        {"parent": "org", "compute": {"limit": 900}},
        ["queue c, spec.compute: limit 900 is never reached: queue org above it has limit 800"],
    ),
    "namespaces of an inner queue": (
        "org",
        {"namespaces": ["x"]},
        ["queue org, spec.namespaces does nothing: pods wait in the queues below it"],
    ),
    "minutes without autoscale": (
        "c",
        {"autoscaleMinutes": 5},
        ["queue c, spec.autoscaleMinutes does nothing without autoscale"],
    ),
    "a first child": (
        "c",
        {"parent": "b"},
        [
            (
                "queue b has queues below it from now on, where its pods must wait; "
                "namespaces whose label still names it: team"
            )
        ],
    ),
}


def test_a_queue_whose_parent_is_closed_for_memory_is_closed_with_it() -> None:
    """Nobody comes in there who asks for memory alone."""
    shut, half = Quota(limit=0), QueueSpec(parent="org", compute=Quota(limit=0))
    assert list(oddities_of("c", {"org": QueueSpec(memory=shut), "c": half})) == []
    assert len(list(oddities_of("c", {"org": QueueSpec(), "c": half}))) == 1


@pytest.mark.parametrize("row", TAKEN)
async def test_what_is_only_odd_is_warned_of(row: str) -> None:
    """It comes in, and its author reads what it does not do."""
    name, spec, warnings = TAKEN[row]
    answer = await of_queue(ORG, name, spec, {"team": "b"} if row == "a first child" else {})
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)


KEPT: Specs = {"keeper": {"compute": {"guarantee": 200, "lendingLimit": 0}}}
FOR_NOBODY = (
    "queue keeper, spec.{thing}: it keeps {kept} idle, and the queues below it may use {usable} by their limits: "
    "{rest} idles for good; raise those, or lendingLimit by {rest}"
)


@pytest.mark.parametrize("below", [{}, {"deep": {"parent": "within"}}])
async def test_what_is_kept_for_nobody_is_warned_of(below: Specs) -> None:
    """At whichever queue it comes to be so: no limit below lets it be used, and nobody else gets it either."""
    half = {"parent": "keeper", "compute": {"limit": 100}}
    queues = {**KEPT, "within": half, **below}
    said = [FOR_NOBODY.format(thing="compute", kept=200, usable=100, rest=100)]
    for name, spec in (("within", half), ("keeper", KEPT["keeper"])):
        answer = await of_queue(queues, name, spec)
        assert (answer["allowed"], answer.get("warnings", [])) == (True, said)
    lending = {"compute": {"guarantee": 200, "lendingLimit": 100}}
    assert "warnings" not in await of_queue(queues, "keeper", lending)
    more = {"parent": "keeper", "compute": {"limit": 100}}
    assert "warnings" not in await of_queue(queues, "another", more)


async def test_what_is_kept_for_nobody_of_a_model_is_warned_of_too() -> None:
    """Of its memory here."""
    keeper = {"models": {"A100*": {"memory": {"guarantee": 5000, "lendingLimit": 2000}}}}
    child = {"parent": "keeper", "models": {"A100*": {"memory": {"limit": 1050}}}}
    answer = await of_queue({"keeper": keeper}, "within", child)
    assert answer["warnings"] == [FOR_NOBODY.format(thing="models[A100*].memory", kept=3000, usable=1050, rest=1950)]


MUCH = {"compute": {"guarantee": 5000, "lendingLimit": 0}}
# Sixteen cards of 80,000 MiB each; of a model, four of them.
THERE = {"": (1600, 1_280_000), "H100*": (400, 320_000)}
TOO_MUCH = (
    "queue {name}, lendingLimit: it keeps {kept} of {thing} idle{others}, and the cluster has {there}: nobody else is "
    "let in; guarantee less, lend some of it, or add GPUs"
)
OF_MODEL = {"models": {"H100*": {"compute": {"guarantee": 500, "lendingLimit": 0}}}}
LENT_OF_MODEL = {"models": {"H100*": {"compute": {"guarantee": 401}, "memory": {"guarantee": 320_000}}}}


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("c", MUCH, [{"kept": "5000 %", "thing": "compute", "others": " (all queues together 5200 %)"}]),
        ("c", {"compute": {"guarantee": 5000}}, []),
        ("c", {"compute": {"guarantee": 1399, "lendingLimit": 0}}, []),
        (
            "c",
            {"compute": {"guarantee": 1400, "lendingLimit": 0}},
            [{"kept": "1400 %", "thing": "compute", "others": " (all queues together 1600 %)"}],
        ),
        ("c", {"models": {"H100*": {"compute": {"limit": 100}}}}, []),
        ("c", OF_MODEL, [{"kept": "500 %", "thing": "compute of H100*", "others": "", "there": "400 %"}]),
    ],
    ids=["more than there is", "lent", "nearly all", "all that there is", "a model that is there", "of a model"],
)
async def test_what_is_kept_beyond_all_there_is_is_warned_of_as_it_is_written(
    name: str, spec: Json, said: list[Json]
) -> None:
    """And not only in its status a moment later, when nobody else is let in any more."""
    now = plan({"clinic": {"compute": {"guarantee": 200, "lendingLimit": 0}}})
    asked: list[list[str]] = []

    def hardware(models: Iterable[str]) -> Hardware:
        asked.append(list(models))
        return Hardware(there={pattern: THERE[pattern] for pattern in ("", *asked[-1])})

    told = Told(heard=None, now=now)
    webhook = Admission(names=NAMES, settings=AdmissionSettings(), plans=told, hardware=hardware)
    answer = answered(await webhook.validating_queue(queue_review(name, spec)))
    warnings = [TOO_MUCH.format(**({"name": name, "there": "1600 %"} | words)) for words in said]
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)
    assert asked == [list(spec.get("models", ()))]


async def test_guarantees_of_a_model_beyond_all_that_there_is_are_warned_of() -> None:
    """Of all queues together, who writes one of them; more GPUs may come, so nothing is refused."""
    webhook = Admission(
        names=NAMES,
        settings=AdmissionSettings(),
        plans=Told(heard=None, now=plan({"other": {"models": {"H100*": {"compute": {"guarantee": 99}}}}})),
        hardware=lambda _: Hardware(there=THERE),
    )
    answer = answered(await webhook.validating_queue(queue_review("c", LENT_OF_MODEL)))
    said = (
        "queue c, spec.models[H100*].compute: all queues together are guaranteed 500 % of compute of H100*, and the "
        "cluster has 400 %: they never have it all at once; guarantee less, or add GPUs"
    )
    assert (answer["allowed"], answer["warnings"]) == (True, [said])
    assert "warnings" not in answered(await webhook.validating_queue(queue_review("c", {})))


async def test_a_model_of_which_there_is_no_gpu_is_warned_of() -> None:
    """A name without stars is compared with the whole name."""
    known = Hardware(there={"": (1600, 1_280_000), "H100": (0, 0)})
    webhook = Admission(
        names=NAMES,
        settings=AdmissionSettings(),
        plans=Told(heard=None, now=plan({})),
        hardware=lambda _: known,
    )
    spec = {"models": {"H100": {"compute": {"limit": 100}}}}
    answer = answered(await webhook.validating_queue(queue_review("c", spec)))
    (said,) = answer["warnings"]
    assert said == (
        "queue c, spec.models[H100]: no GPU that is there now is of it; it is compared with whole names: "
        "'*H100*' takes all that have H100 in theirs"
    )


async def test_nobody_is_warned_of_what_is_kept_where_cards_are_not_known() -> None:
    """By a replica that does not lead, or a leader that has seen no card yet."""
    assert "warnings" not in await of_queue({}, "c", MUCH)


KEEPS = {"parent": "org", "compute": {"guarantee": 800, "lendingLimit": 0}}
NOTHING = (
    "queue b, spec.compute: it gets nothing, ever: of the 800 that queue org may have those beside it keep all, "
    "idle or not (lendingLimit: a 800)"
)


@pytest.mark.parametrize(
    ("name", "spec", "warnings"),
    [
        ("a", KEEPS, [NOTHING]),
        ("a", {"parent": "org", "compute": {"guarantee": 800, "lendingLimit": 1}}, []),
        ("other", {}, []),
    ],
    ids=["keeper", "lender", "bystander"],
)
async def test_a_queue_that_leaves_nothing_to_those_beside_it_is_warned_of(
    name: str, spec: Json, warnings: list[str]
) -> None:
    """A hard reservation of all that they share; the tree bears it, and a pod beside it would wait for ever."""
    queues = {"org": ORG["org"], "a": {"parent": "org"}, "b": {"parent": "org"}}
    answer = await of_queue(queues, name, spec)
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)
    starved = await of_queue({**queues, "a": KEEPS}, "b", {"parent": "org", "priority": 1})
    assert (starved["allowed"], starved["warnings"]) == (True, [NOTHING])


async def test_a_limit_below_what_a_queue_keeps_leaves_the_rest_to_those_beside_it() -> None:
    """In a tree that is broken already, it keeps no more than it may use."""
    keeps = {"parent": "org", "compute": {"guarantee": 800, "limit": 300, "lendingLimit": 0}}
    queues = {"org": ORG["org"], "a": keeps, "b": {"parent": "org"}}
    assert NOTHING not in (await of_queue(queues, "b", {"parent": "org", "priority": 1})).get("warnings", [])


WRITTEN = "2026-11-22T09:10:11Z"
HOMES = "new pods are refused in the namespaces whose label names it: x, y"
LEFT: dict[str, tuple[Json, list[str]]] = {
    "three wait, others run": (
        {"used": {"compute": 250, "memory": 40_000}, "waiting": 3, "at": WRITTEN},
        [
            (
                "the 3 pods that wait in it are let in nowhere until they, or their namespaces, name another "
                f"(as of {WRITTEN})"
            ),
            f"its pods go on with 250 % and 40000 MiB, counted for no queue (as of {WRITTEN})",
            HOMES,
        ],
    ),
    "one waits": (
        {"waiting": 1, "at": WRITTEN},
        [
            f"the 1 pod that waits in it is let in nowhere until it, or its namespace, names another (as of {WRITTEN})",
            HOMES,
        ],
    ),
    "nobody was in it": ({"at": WRITTEN}, [HOMES]),
    "nobody has looked yet": ({}, [UNTOLD, HOMES]),
}


@pytest.mark.parametrize("row", LEFT)
async def test_who_deletes_a_queue_in_use_reads_what_is_left(row: str) -> None:
    """Pods that run lose nothing, who waits has nowhere to go; and as of when it is told, since a status is behind."""
    status, warnings = LEFT[row]
    answer = await of_queue(ORG, "b", None, {"x": "b", "y": "b", "z": "a"}, status=status)
    assert answer == {"allowed": True, "warnings": warnings}


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


@pytest.mark.parametrize("pattern", ["Team*", "!ann", " ", "team_a"])
def test_a_pattern_that_takes_no_namespace_is_warned_of(pattern: str) -> None:
    """No namespace has such a name, so nobody would ever be let in by it."""
    (said,) = oddities_of("a", {"a": QueueSpec(namespaces=(pattern, "team-*", "team-[ab]?", "*"))})
    assert said.startswith(f"queue a, spec.namespaces: {pattern!r} takes no namespace")


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


# --- pods ------------------------------------------------------------------------------------------------------------
TREE = {
    "org": {"compute": {"limit": 300}},
    "a": {"parent": "org", "namespaces": ["team*"], "compute": {"guarantee": 100}},
    "b": {"parent": "org"},
    "held": {"stop": "hold", "namespaces": ["*"]},
    "drained": {"stop": "drain"},
    "below": {"parent": "drained", "namespaces": ["*"]},
}
PLACES: dict[str, tuple[str, Mapping[str, str], Mapping[str, str], str]] = {
    "no such queue": (
        "x",
        {"compute": "30"},
        {},
        "label aliquot.dev/queue: there is no queue x; write one of the queues a, default, held into the pod's label",
    ),
    "an inner queue": ("org", {"compute": "30"}, {}, "queue org has queues below it, and pods wait only in those"),
    "not for this namespace": (
        "b",
        {"compute": "30"},
        {},
        (
            "queue b does not take pods of namespace team; write one of the queues a, default, held into the pod's "
            "label aliquot.dev/queue; an operator can add namespace team to spec.namespaces of a queue, or label the "
            "namespace"
        ),
    ),
    "drained above": (
        "below",
        {"compute": "30"},
        {},
        "queue below takes no pods: queue drained above it is being drained; name another queue",
    ),
    "its namespace's is not there": (
        "",
        {"compute": "30"},
        {"team": "gone"},
        "label aliquot.dev/queue of namespace team: there is no queue gone; write one of the queues a,",
    ),
}


async def of_pod(body: bytes, told: Told) -> Json:
    """The answer to a pod."""
    return answered(await admission(told).validating(body))


def asking(queue: str = "", notes: Mapping[str, str] | None = None, **limits: Any) -> Json:
    """A pod of namespace `team` as the mutating endpoint leaves it."""
    return mutated(written(container(**limits), labels={"queue": queue} if queue else {}, notes=notes))


@pytest.mark.parametrize("row", PLACES)
async def test_a_pod_must_wait_where_it_may(row: str) -> None:
    """Told at once, with the choice it has."""
    queue, limits, homes, sentence = PLACES[row]
    now = plan(TREE, homes)
    answer = await of_pod(review(asking(queue, None, **limits)), Told(heard=now, now=now))
    assert answer["allowed"] is False
    assert sentence in answer["status"]["message"]


WARNED: dict[str, tuple[str, Mapping[str, str], Mapping[str, str], list[str]]] = {
    "all is well": ("a", {"compute": "300"}, {}, []),
    "at home": ("", {"compute": "30"}, {}, []),
    "held": (
        "held",
        {"compute": "30"},
        {},
        ["queue held lets nobody in for now: it is held"],
    ),
    "beyond a limit above": (
        "a",
        {"compute": "400", "memory": "60000"},
        {},
        ["it asks 400 % of compute, and queue org may never have more than 300 %: it waits until that is raised"],
    ),
    "beyond the guarantee": (
        "a",
        {"compute": "101"},
        {"preemptible": "false"},
        [
            (
                "it asks 101 % of compute never to be taken back, and queue a is guaranteed 100 %: "
                "it waits until that is raised"
            ),
        ],
    ),
    "within the guarantee": ("a", {"compute": "100", "memory": "30000"}, {"preemptible": "false"}, []),
    "no guarantee at all": (
        "",
        {"compute": "1"},
        {"preemptible": "false"},
        [
            (
                "it asks 1 % of compute never to be taken back, and queue default is guaranteed 0 %: "
                "it waits until that is raised"
            )
        ],
    ),
    "memory alone, and no guarantee at all": (
        "",
        {"memory": "500"},
        {"preemptible": "false"},
        [
            (
                "it asks 500 MiB of memory never to be taken back, and queue default is guaranteed 0 MiB: "
                "it waits until that is raised"
            )
        ],
    ),
}


@pytest.mark.parametrize("row", WARNED)
async def test_a_pod_that_can_wait_comes_in(row: str) -> None:
    """With a warning of what keeps it until an operator changes something; cut where the API server would complain."""
    queue, limits, notes, warnings = WARNED[row]
    answer = await of_pod(review(asking(queue, notes, **dict(limits))), Told(heard=plan(TREE), now=None))
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)


async def test_without_queues_nobody_is_told_to_wait_for_a_guarantee() -> None:
    """It is let in as all others are: there is no queue that could be guaranteed something."""
    answer = await of_pod(
        review(asking("", {"preemptible": "false"}, compute="30")), Told(heard=plan({}), now=plan({}))
    )
    assert (answer["allowed"], answer.get("warnings", [])) == (True, [])


async def test_a_queue_made_a_moment_ago_counts() -> None:
    """What was heard may be old: nobody is refused by it before the API server was asked."""
    told = Told(heard=plan({}), now=plan(TREE))
    assert (await of_pod(review(asking("a", compute="30")), told))["allowed"] is True
    assert (await of_pod(review(asking(compute="30")), told))["allowed"] is True
    assert told.questions == 1


async def test_a_pod_is_let_pass_when_nothing_was_heard_and_nobody_answers() -> None:
    """The centre judges it once more; what was heard still counts."""
    assert (await of_pod(review(asking("x", compute="30")), Told(heard=None, now=None)))["allowed"] is True
    assert (await of_pod(review(asking("x", compute="30")), Told(heard=plan({}), now=None)))["allowed"] is False


async def test_a_change_of_something_else_is_no_question_of_queues() -> None:
    """A pod whose queue is gone can still be annotated, and moved to one that is there; bound, nothing is asked."""
    told = Told(heard=plan(TREE), now=plan(TREE))
    gone = asking("gone", compute="30")
    noted = {**gone, "metadata": {**gone["metadata"], "annotations": {"x": "y"}}}
    assert (await of_pod(review(noted, old=gone), told))["allowed"] is True
    assert (await of_pod(review(asking("a", compute="30"), old=gone), told))["allowed"] is True
    assert (await of_pod(review(asking("b", compute="30"), old=gone), told))["allowed"] is False
    bound = written(container(compute="30"), labels={"queue": "b"}, nodeName="n1")
    answer = await of_pod(review(bound, old={**bound, "metadata": {**bound["metadata"], "labels": {}}}), told)
    assert "can't change any more" in answer["status"]["message"]
    assert "does not take" not in answer["status"]["message"]
    plain = written(container(), labels={"queue": "gone"})
    assert (await of_pod(review(plain), told))["allowed"] is True


async def test_without_queues_there_is_the_default_one() -> None:
    """Also where the definition of Queue is not installed."""
    told = Told(heard=plan({}), now=plan({}))
    assert (await of_pod(review(asking(compute="30")), told)) == {"allowed": True}
    assert (await of_pod(review(asking("default", compute="30")), told)) == {"allowed": True}
    assert (await of_pod(review(asking("a", compute="30")), told))["allowed"] is False
