"""Queues as they are written: every problem at once, and a tree that can be counted with whatever is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.problems import Problems
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota, read_queue
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, UNLIMITED, plant

GIB = 2**30


def read(raw: dict[str, Any]) -> tuple[QueueSpec, list[str]]:
    """A spec and what is wrong with it."""
    problems = Problems()
    spec = read_queue(raw, name="ml", problems=problems)
    return spec, [str(problem) for problem in problems.found]


def queue(parent: str = "", *, guarantee: int | None = None, limit: int | None = None, **more: Any) -> QueueSpec:
    """A queue with a quota of compute."""
    lend, borrow, weight = more.pop("lend", None), more.pop("borrow", None), more.pop("weight", 1)
    quota = Quota(guarantee=guarantee, limit=limit, weight=weight, lending_limit=lend, borrowing_limit=borrow)
    return QueueSpec(parent=parent, compute=quota, **more)


def test_a_whole_spec_is_read() -> None:
    """Every field of the custom resource arrives."""
    spec, problems = read(
        {
            "parent": "org",
            "compute": {"guarantee": 400, "limit": 800, "weight": 2, "lendingLimit": 100, "borrowingLimit": 200},
            "memory": {"guarantee": 80_000},
            "models": {"*A100*": {"compute": {"limit": 100}}},
            "hosts": {"cpu": "1500m", "memory": "4Gi"},
            "priority": -5,
            "stop": "hold",
            "namespaces": ["team-*"],
            "autoscale": True,
            "autoscaleMinutes": 5,
        }
    )
    assert not problems
    assert spec.compute == Quota(guarantee=400, limit=800, weight=2, lending_limit=100, borrowing_limit=200)
    assert (spec.parent, spec.memory.guarantee, spec.priority, spec.stop) == ("org", 80_000, -5, "hold")
    assert (spec.namespaces, spec.autoscale, spec.autoscale_minutes) == (("team-*",), True, 5)
    tree = plant({"org": QueueSpec(), "ml": spec})
    assert tree.dimensions.names == (
        "compute",
        "memory",
        "compute of *A100*",
        "memory of *A100*",
        "CPU",
        "host memory",
    )
    # 600 is what it may borrow up to; nothing is said of a model's memory.
    assert tree.nodes["ml"].ceiling == (600, UNLIMITED, 100, UNLIMITED, 1500, 4 * GIB)
    assert tree.nodes["ml"].kept == (300, 0, 0, 0, 0, 0)


def test_all_problems_of_a_spec_are_told_at_once() -> None:
    """A negative number, an unknown field, a wrong type and a quantity that is none are all told, with where."""
    spec, problems = read(
        {
            "compute": {"guarantee": -1, "limt": 3, "weight": "2"},
            "models": {"A100": {"compute": {"limit": True}}},
            "hosts": {"cpu": "many"},
            "stop": "now",
            "colour": "red",
        }
    )
    assert [problem.split(":")[0] for problem in problems] == [
        "queue ml, spec",
        "queue ml, spec.compute",
        "queue ml, spec.compute.guarantee",
        "queue ml, spec.compute.weight",
        "queue ml, spec.models[A100].compute.limit",
        "queue ml, spec.stop",
        "queue ml, spec.hosts.cpu",
    ]
    assert "did you mean limit?" in problems[1]
    assert spec == QueueSpec(models=spec.models)


@given(
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["compute", "limit", "models", "hosts", "cpu", "parent", "namespaces", "x"]), inner
            )
        ),
    )
)
def test_whatever_is_written_is_read_or_refused(raw: Any) -> None:
    """No input breaks the reader, and what it makes of it can be planted."""
    problems = Problems()
    spec = read_queue(raw, name="ml", problems=problems)
    assert ROOT in plant({"ml": spec}).nodes


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ({"a": queue("b"), "b": queue("a")}, ["circle: a → b → a", "circle: b → a → b"]),
        ({"a": queue("a")}, ["circle: a → a"]),
        ({"a": queue("gone")}, ["no queue 'gone'"]),
        ({"a": queue(guarantee=10, limit=5)}, ["guarantee 10 is more than its own limit of 5"]),
        ({"a": queue(guarantee=10, lend=11)}, ["lendingLimit 11 is above guarantee 10"]),
        (
            {"a": queue(guarantee=10), "b": queue("a", guarantee=6), "c": queue("a", guarantee=5)},
            ["its children are guaranteed 11 (b 6 + c 5), more than its own guarantee of 10"],
        ),
        ({"a": queue(limit=10), "b": queue("a", guarantee=11)}, ["more than its own limit of 10"]),
        (
            {"a": queue(limit=10), "b": queue("a"), "c": queue("b", guarantee=6), "d": queue("b", guarantee=5)},
            ["its children are guaranteed 11 (b 11), more than its own limit of 10"],
        ),
        ({"a": queue(), "b": queue("a", guarantee=11), "c": queue("a", guarantee=9)}, []),
        ({"a": queue(guarantee=20), "b": queue("a", guarantee=11), "c": queue("a", guarantee=9)}, []),
    ],
)
def test_contradictions_of_the_tree_are_told(specs: dict[str, QueueSpec], told: list[str]) -> None:
    """Circles, missing parents and numbers that can't all hold are told with the queue and a remedy."""
    found = problems_of(specs)
    assert len(found) == len(told)
    assert all(
        text in str(problem) and problem.where and problem.remedy for text, problem in zip(told, found, strict=True)
    )


def test_what_hangs_on_nothing_is_left_out() -> None:
    """A circle, and a queue below a missing one, are no queues; the others stay."""
    tree = plant({"a": queue("b"), "b": queue("a"), "c": queue("gone"), "d": queue("c"), "e": queue()})
    assert sorted(tree.nodes) == [ROOT, "default", "e"]
    assert tree.path("d") == (ROOT,)


def test_a_tree_with_contradictions_can_be_counted_with() -> None:
    """A limit beats a guarantee, a parent is guaranteed what its children are, and they no more than it may."""
    specs = {"a": queue(guarantee=10, limit=15), "b": queue("a", guarantee=20), "c": queue("a", guarantee=10)}
    tree = plant({**specs, "d": queue(guarantee=9, limit=4), "e": queue(), "f": queue("e", guarantee=7)})
    assert [tree.nodes[name].guarantee[COMPUTE] for name in "abcdef"] == [15, 10, 5, 4, 7, 7]
    assert tree.nodes["a"].guarantee[MEMORY] == 0


def test_only_leaves_take_pods() -> None:
    """Pods wait in queues without children; where no queue was made, there is one by default."""
    tree = plant({"a": queue(), "b": queue("a")})
    assert tree.leaf("a") is None
    assert tree.leaf(ROOT) is None
    assert tree.leaf("none") is None
    assert {name for name in tree.nodes if tree.leaf(name)} == {"b", "default"}


def test_a_held_queue_holds_all_below() -> None:
    """Hold and drain hold for the whole branch, and drain is the stronger word."""
    tree = plant({"a": queue(stop="drain"), "b": queue("a", stop="hold"), "c": queue("b"), "d": queue()})
    assert [tree.nodes[name].stop for name in "abcd"] == ["drain", "drain", "drain", ""]


def test_a_queue_without_weight_borrows_nothing() -> None:
    """Its guarantee is also its ceiling."""
    assert plant({"a": queue(guarantee=7, weight=0)}).nodes["a"].ceiling[COMPUTE] == 7


def test_the_order_of_writing_does_not_matter() -> None:
    """The same queues make the same tree, in whatever order they became known."""
    specs = {"b": queue("a", guarantee=1), "a": queue(), "c": queue("a")}
    assert plant(specs) == plant(dict(reversed(specs.items())))
    assert list(plant(specs).nodes) == list(plant(dict(reversed(specs.items()))).nodes)
