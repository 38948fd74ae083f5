"""What queues are guaranteed, and what cuts it: trees are planted, and contradictions told, by one rule."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.problems import Problems
from aliquot_scheduler.queues.said.contradictions import problems_by_cards, problems_of
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.oddities import oddities_of
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota, read_queue
from aliquot_scheduler.queues.said.things import Thing, quota_of
from aliquot_scheduler.queues.said.tree import ROOT, Tree, plant

Specs = Mapping[str, QueueSpec]
Fields = Mapping[str, int]

PATTERNS = ("*H100*", "*H100-SXM*", "*A100*", "NVIDIA*")
# What is there: H100 of one kind, and an A100; so of the first two patterns each lies within the other.
KINDS = {
    "*H100*": frozenset({1}),
    "*H100-SXM*": frozenset({1}),
    "*A100*": frozenset({2}),
    "NVIDIA*": frozenset({1, 2}),
}


def of(
    models: Mapping[str, Fields] | None = None, *, parent: str = "", memory: bool = False, **all_cards: int
) -> QueueSpec:
    """A queue with what it says of compute, or else of memory."""
    kind = "memory" if memory else "compute"
    raw = {
        "parent": parent,
        kind: {_camel(field): amount for field, amount in all_cards.items()},
        "models": {pattern: {kind: dict(fields)} for pattern, fields in (models or {}).items()},
    }
    return read_queue(raw, name="read", problems=Problems())


def _camel(field: str) -> str:
    return {"lend": "lendingLimit", "borrow": "borrowingLimit"}.get(field, field)


# Queues; what is said, and whether who writes it is refused; and what `a` is guaranteed of the compute of H100 then.
TOLD: dict[str, tuple[Specs, list[tuple[str, bool]], int]] = {
    "of weight 0 no more than is guaranteed of all": (
        {"a": of({"*H100*": {"guarantee": 200}}, guarantee=100, weight=0)},
        [
            (
                (
                    "more than the 100 that it may use of all GPUs, where it is guaranteed 100 and may borrow 0; "
                    "guarantee it 200 there, or let it borrow more; or guarantee less"
                ),
                True,
            )
        ],
        100,
    ),
    "what may be borrowed counts": ({"a": of({"*H100*": {"guarantee": 200}}, guarantee=100, borrow=100)}, [], 200),
    "less may be borrowed": (
        {"a": of({"*H100*": {"guarantee": 200}}, guarantee=100, borrow=50)},
        [("more than the 150 that it may use of all GPUs, where it is guaranteed 100 and may borrow 50;", True)],
        150,
    ),
    "of weight 0 and no guarantee nothing": (
        {"a": of({"*H100*": {"guarantee": 200}}, weight=0)},
        [("more than the 0 that it may use of all GPUs, where it is guaranteed 0 and may borrow 0;", True)],
        0,
    ),
    "of a wider pattern": (
        {"a": of({"*H100*": {"guarantee": 200}, "*": {"guarantee": 100, "borrowingLimit": 0}})},
        [("more than the 100 that it may use of *, which takes these too, where it is guaranteed 100", True)],
        100,
    ),
    "above it, which says that itself": (
        {"o": of(guarantee=100, weight=0), "m": of(parent="o"), "a": of({"*H100*": {"guarantee": 200}}, parent="m")},
        [
            (
                "queue o, spec.models[*H100*].compute: its children are guaranteed 200, more than the 100 that it may",
                True,
            )
        ],
        100,
    ),
    # `b` guarantees itself 100 of all for as long as it likes: it may give that up whatever is promised to `a`.
    "above it, by what others there are guaranteed": (
        {
            "o": of(weight=0),
            "a": of({"*H100*": {"guarantee": 200}}, parent="o"),
            "b": of(parent="o", guarantee=100),
        },
        [("its children are guaranteed 200, more than the 100 that it may use of all GPUs, where it is", False)],
        100,
    ),
    "a limit and what may be borrowed, both too little": (
        {"a": of({"*H100*": {"guarantee": 200}}, guarantee=50, limit=100, borrow=30)},
        [("more than the 80 that it may use of all GPUs,", True), ("more than limit 100 of all GPUs;", True)],
        80,
    ),
    "what a limit below cuts is told there alone": (
        {
            "o": of(limit=150),
            "m": of(parent="o", limit=100),
            "a": of({"*H100*": {"guarantee": 200}}, parent="m"),
        },
        [("queue m, spec.models[*H100*].compute: its children are guaranteed 200, more than limit 100 of", True)],
        100,
    ),
}


def h100(tree: Tree, name: str) -> int:
    """What a queue is guaranteed of its compute."""
    return tree.nodes[name].guarantee[tree.dimensions.names.index("compute of *H100*")]


@pytest.mark.parametrize("row", TOLD)
def test_a_guarantee_that_can_t_be_used_is_told_and_cut(row: str) -> None:
    """At the queue whose words let less be used; refused unless that is by what its children are guaranteed."""
    specs, told, guaranteed = TOLD[row]
    found = problems_of(specs)
    assert [problem.is_refused for problem in found] == [refused for _, refused in told]
    for problem, (words, _) in zip(found, told, strict=True):
        assert words in str(problem)
    assert h100(plant(specs), "a") == guaranteed


def test_of_memory_it_is_the_same() -> None:
    """Each dimension by itself: what is said of compute bounds no memory."""
    specs = {"a": of({"*H100*": {"guarantee": 200_000}}, memory=True, guarantee=80_000, weight=0)}
    (problem,) = problems_of(specs)
    assert "spec.models[*H100*].memory: guarantee 200000 is more than the 80000 that it may use" in str(problem)
    assert not problems_of({"a": of({"*H100*": {"guarantee": 200}}, guarantee=500, weight=0)})


def test_what_a_reservation_takes_along_is_no_ceiling_before_the_cards_are_known() -> None:
    """Who keeps compute idle is guaranteed memory with it, as much as there is for that."""
    models = {"*H100*": ModelQuota(memory=Quota(guarantee=1000))}
    specs = {"a": QueueSpec(compute=Quota(guarantee=300, lending_limit=0), memory=Quota(weight=0), models=models)}
    assert problems_of(specs) == []


def test_by_the_cards_that_are_there_it_is_told_in_the_status() -> None:
    """Not by how it is written: all H100 that are there are of the narrow pattern too."""
    specs = {"a": of({"*H100*": {"guarantee": 200}, "NVIDIA*": {"limit": 100}})}
    assert problems_of(specs) == []
    assert problems_by_cards(plant(specs)) == {}
    (said,) = problems_by_cards(plant(specs, hardware=Hardware(kinds=KINDS)))["a"]
    assert "guarantee 200 is more than limit 100 of NVIDIA*, which takes these too" in said


def test_guarantees_of_models_that_can_t_all_be_used_are_warned_of() -> None:
    """Each of them can be, and nobody's matter is wrong; but never both."""
    both = {"*H100*": {"guarantee": 200}, "*A100*": {"guarantee": 200}}
    above = {"o": of(limit=300), "a": of(both, parent="o")}
    words = "it is guaranteed 400 of compute (*A100* 200 + *H100* 200), and may use 300 of all GPUs: never all of it"
    for specs, place in (({"a": of(both, limit=300)}, "queue a,"), (above, "queue o,")):
        assert not problems_of(specs)
        (said,) = oddities_of("a", specs)
        assert said.startswith(place)
        assert words in said
    assert list(oddities_of("a", {"a": of(both, limit=400)})) == []


NUMBERS = st.sampled_from([0, 100, 150, 200, 300])
QUOTAS = st.fixed_dictionaries(
    {}, optional={"guarantee": NUMBERS, "limit": NUMBERS, "borrow": NUMBERS, "weight": st.just(0)}
)


@st.composite
def trees(draw: st.DrawFn) -> Specs:
    """Of six queues at most, which may hang on nothing."""
    specs = {}
    for name in draw(st.sets(st.sampled_from("abcdef"), min_size=1)):
        models = draw(st.dictionaries(st.sampled_from(PATTERNS), QUOTAS, max_size=2))
        renamed = {pattern: {_camel(field): n for field, n in fields.items()} for pattern, fields in models.items()}
        parent = draw(st.sampled_from(["", *(other for other in "abcdef" if other < name)]))
        specs[name] = of(renamed, parent=parent, memory=draw(st.booleans()), **draw(QUOTAS))
    return specs


def promised(specs: Specs, name: str, thing: Thing) -> int:
    """By its own word, or else by those of its children."""
    own = quota_of(specs[name], thing).guarantee
    return sum(promised(specs, child, thing) for child in specs if specs[child].parent == name) if own is None else own


@example(specs={"a": of({"*H100*": {"guarantee": 200}, "*H100-SXM*": {"guarantee": 100, "weight": 0}})}, by_cards=True)
@given(specs=trees(), by_cards=st.booleans())
@settings(deadline=None)
def test_nobody_is_guaranteed_what_it_may_not_use(specs: Specs, *, by_cards: bool) -> None:
    """Whatever is written: no more than its ceiling there and of all that lies within, nor than its parent is."""
    tree = plant(specs, hardware=Hardware(kinds=KINDS if by_cards else {}))
    for node in tree.nodes.values():
        for dim in range(tree.dimensions.cards):
            assert all(node.guarantee[dim] <= node.ceiling[wide] for wide in (dim, *tree.within[dim])), node.name
            assert node.name == ROOT or node.guarantee[dim] >= node.kept[dim]
            assert sum(tree.nodes[child].guarantee[dim] for child in node.children) <= node.guarantee[dim], node.name


@given(specs=trees())
@settings(deadline=None)
def test_what_is_cut_is_told_and_what_is_told_is_cut(specs: Specs) -> None:
    """A tree of which nothing is told is guaranteed as it is written; of any other one something is not."""
    tree, wrong = plant(specs), [one for one in problems_of(specs) if one.kind.name not in {"NO_PARENT", "CIRCLE"}]
    good = {name: specs[name] for name in tree.nodes if name in specs}
    things = [tree.dimensions.thing_of(dim) for dim in range(tree.dimensions.cards)]
    as_written = all(
        tree.nodes[name].guarantee[dim] == promised(good, name, thing)
        for name in good
        for dim, thing in enumerate(things)
    )
    assert as_written is not bool(wrong) or len(good) < len(specs)
