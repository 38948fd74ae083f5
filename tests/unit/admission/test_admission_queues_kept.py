"""Whoever has a queue keep what nobody can use then, or all that others share, is warned of it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.queues.said.dues import Hardware
from support.admitting import NAMES, Json, answered, queue_review
from support.queue_admission import ORG, Specs, Told, of_queue, plan

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
