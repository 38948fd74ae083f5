"""Which nodes suit a pod by their labels, asked of all at once: as the plain rules say of each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.node_rules import ANY_NODE, NAME_FIELD, Requirement, Term, Wanted, number_of, why_unsuited
from aliquot_core.objects import Node
from aliquot_scheduler.picture.labels import Labels
from aliquot_scheduler.picture.marks import Marks

ROWS = 40
KEYS, VALUES = ("zone", "size", NAME_FIELD), ("a", "b", "-1", "7", "10", "", "1_0", "99999999999999999999")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
# Some labels are on so many nodes that masks are made of them.
changes = st.lists(st.tuples(st.integers(0, ROWS - 1), st.one_of(st.none(), labels)), max_size=60)
texts = st.sampled_from((*VALUES, "n3", "n4"))
requirements = st.builds(
    Requirement,
    key=st.sampled_from((*KEYS, "nobody")),
    operator=st.sampled_from(OPERATORS),
    values=st.lists(texts, max_size=3).map(tuple),
)
terms = st.builds(
    Term,
    match_expressions=st.lists(requirements, max_size=2).map(tuple),
    match_fields=st.lists(requirements, max_size=2).map(tuple),
)
wishes = st.builds(
    Wanted,
    selector=st.lists(st.tuples(st.sampled_from(KEYS), texts), max_size=1).map(tuple),
    terms=st.one_of(st.none(), st.lists(terms, max_size=3).map(tuple)),
).filter(lambda wanted: wanted != ANY_NODE)


def node(row: int, marks: Mapping[str, str]) -> Node:
    """The node in this row."""
    return msgspec.convert({"metadata": {"name": f"n{row}", "labels": dict(marks)}}, Node)


def by_the_plain_rules(there: Mapping[int, Node], wanted: Wanted) -> list[bool]:
    """What asking every node says, by row."""
    metas = (there[row].metadata if row in there else None for row in range(ROWS))
    return [meta is not None and not why_unsuited(wanted, name=meta.name, labels=meta.labels) for meta in metas]


def wish_of(key: str, operator: str, *values: str, of_names: bool = False) -> Wanted:
    """A wish of one test."""
    tests = (Requirement(key=key, operator=operator, values=values),)
    return Wanted(terms=(Term(match_fields=tests) if of_names else Term(match_expressions=tests),))


# On many nodes with one value, and of a label that is called like the field.
MANY = [wish_of("size", operator, "7") for operator in ("Gt", "Lt", "In", "NotIn")]
NAMED = [wish_of("zone", "NotIn", of_names=True)]


@given(st.lists(labels, max_size=ROWS), changes, st.lists(wishes, min_size=1, max_size=3))
@example([{"size": "10"}] * ROWS, [(1, {"size": "-1"})], MANY)
@example([{"size": "7"}] * ROWS, [(1, {"size": "-1"})], MANY)
@example([{NAME_FIELD: "n3"}] * 20, [(1, {})], NAMED)
@settings(max_examples=150, deadline=None)
def test_all_at_once_say_what_each_says(
    first: list[dict[str, str]], changed: list[tuple[int, dict[str, str] | None]], asked: list[Wanted]
) -> None:
    """However nodes come, change and go, and whatever was asked before; and nothing is left of those that are gone."""
    by_key, marks, there = Labels(), Marks(rows=ROWS), dict[int, Node]()

    def becomes(row: int, after: Node | None) -> None:
        by_key.put(row, before=there.get(row), after=after)
        if after is None:
            there.pop(row, None)
            marks.node_gone(row)
        else:
            there[row] = after
            marks.node_seen(after, row=row, rows=ROWS)

    for row, marked in enumerate(first):
        becomes(row, node(row, marked))
    for row, now in [(0, None), *changed]:
        becomes(row, None if now is None else node(row, now))
        for wanted in asked:
            expected = by_the_plain_rules(there, wanted)
            assert by_key.suiting(wanted, rows=ROWS).tolist() == expected
            assert marks.wanted(wanted).tolist() == expected
    for row in list(there):
        becomes(row, None)
    assert vars(by_key) == vars(Labels())


def test_what_was_handed_out_never_changes() -> None:
    """Who keeps an answer has it as it was, though the node is another one by now."""
    marks, wanted = Marks(rows=ROWS), Wanted(selector=(("zone", "a"),))
    marks.node_seen(node(0, {"zone": "a"}), row=0, rows=ROWS)
    before = marks.wanted(wanted)
    marks.node_seen(node(0, {"zone": "b"}), row=0, rows=ROWS)
    assert not marks.wanted(wanted)[0]
    assert np.flatnonzero(before).tolist() == [0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("9" * 5_000, None),
        ("1_0", None),
        (" 7", None),
        ("\u0667", None),
        ("7.0", None),
        ("", None),
    ],
)
def test_a_label_is_a_number_where_the_api_server_takes_it_for_one(text: str, number: int | None) -> None:
    """Python reads more as one than Go does."""
    assert number_of(text) == number
