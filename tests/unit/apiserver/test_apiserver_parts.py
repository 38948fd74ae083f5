"""The server's small parts: quantities, selectors, patches, names."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from aliquot_standalone.apiserver import quantities
from aliquot_standalone.apiserver.failures import ApiError
from aliquot_standalone.apiserver.names import rule_of
from aliquot_standalone.apiserver.patches import json_patch, merge_patch
from aliquot_standalone.apiserver.selectors import parse_fields, parse_labels
from aliquot_standalone.apiserver.strategic import strategic_merge

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E-3", "e9"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(st.integers(0, 10**12), st.integers(0, 3), st.sampled_from(SUFFIXES))
def test_the_one_form_is_the_same_amount(digits: int, places: int, suffix: str) -> None:
    """Writing a quantity in its one form keeps the amount, and is done once."""
    text = f"{Fraction(digits, 10**places).__float__():.3f}{suffix}" if places else f"{digits}{suffix}"
    amount = quantities.parse(text)
    assume(amount is not None and amount < 10**27)
    written = quantities.canonical(text)
    assert written is not None
    assert quantities.parse(written) == amount
    assert quantities.canonical(written) == written


@pytest.mark.parametrize("text", ["", "m", "1 ", " 1", "1x", "1e", "--1", "1.2.3", "0x1", "1e100", "∞", "9" * 70])
def test_what_is_no_quantity(text: str) -> None:
    """Texts that Kubernetes would not take are none; exponents and lengths are bounded."""
    assert quantities.parse(text) is None
    assert quantities.canonical(text) is None


def test_amounts_are_rounded_up_to_a_billionth() -> None:
    """Nothing is finer than nano, and nobody gets less than they asked."""
    assert quantities.parse("0.0000000001") == Fraction(1, 10**9)
    assert quantities.parse("-0.0000000001") == Fraction(-1, 10**9)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_what_the_rfc_says(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """A merge patch leaves its document alone, takes out nulls, and done twice is done once."""
    before = repr(document)
    merged = merge_patch(document, patch)
    assert repr(document) == before
    assert merge_patch(merged, patch) == merged
    for key in document.keys() | patch.keys():
        if key not in patch:
            assert merged[key] == document[key]
        elif patch[key] is None:
            assert key not in merged
        elif not isinstance(patch[key], dict):
            assert merged[key] == patch[key]


@given(OBJECTS, st.data())
def test_a_refused_json_patch_leaves_no_trace(document: dict[str, Any], data: st.DataObject) -> None:
    """Whatever the operations are, the document given is not touched, and errors are refusals."""
    operation = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "none"]),
            "path": st.sampled_from(["", "/a", "/a/b", "/b/0", "/b/-", "/c/1/a", "bad", "/a/~1"]),
        },
        optional={"value": JSON, "from": st.sampled_from(["/a", "/b/0", "/c", ""])},
    )
    operations = data.draw(st.lists(operation, max_size=4))
    before = repr(document)
    codes = []
    try:
        json_patch(document, operations)
    except ApiError as error:
        codes.append(error.code)
    assert repr(document) == before
    assert codes in ([], [422])


@pytest.mark.parametrize(
    ("value", "stored", "same"),
    [
        (1, True, False),
        (True, True, True),
        (1.0, 1, True),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": [True]}, {"a": [1]}, False),
    ],
)
def test_json_patch_tests_as_json_compares(value: object, stored: object, same: object) -> None:
    """`true` is not 1, and 1.0 is."""
    operations = [{"op": "test", "path": "/x", "value": value}]
    if same:
        assert json_patch({"x": stored}, operations) == {"x": stored}
    else:
        with pytest.raises(ApiError, match="test failed"):
            json_patch({"x": stored}, operations)


@pytest.mark.parametrize(
    ("document", "patch", "merged"),
    [
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {
                "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
                "$setElementOrder/env": [{"name": "C"}, {"name": "B"}],
            },
            {"env": [{"name": "C", "value": "4"}, {"name": "B", "value": "3"}, {"name": "A", "value": "1"}]},
        ),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A", "$patch": "delete"}]}, {"env": []}),
        ({"env": [{"name": "A"}]}, {"env": [{"$patch": "replace"}, {"name": "B"}]}, {"env": [{"name": "B"}]}),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        ),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1}}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
    ],
)
def test_directives_of_strategic_merge(document: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    """Each directive does what kubectl means by it."""
    before = repr(document)
    assert strategic_merge(document, patch) == merged
    assert repr(document) == before


def test_a_strategic_patch_without_the_key() -> None:
    """An item that does not say which one it is can't be merged."""
    with pytest.raises(ApiError, match="merge key"):
        strategic_merge({"env": []}, {"env": [{"value": "1"}]})


@given(
    st.dictionaries(st.sampled_from(["a", "b", "x.y/c"]), st.sampled_from(["", "1", "two"])),
    st.sampled_from(["a", "b", "x.y/c"]),
    st.lists(st.sampled_from(["", "1", "two"]), min_size=1, unique=True),
)
def test_label_selectors_against_their_meaning(labels: dict[str, str], key: str, values: list[str]) -> None:
    """Each operator is the predicate that the documentation states, and `!`/`notin`/`!=` are their opposites."""
    listed = ",".join(values)
    assert parse_labels(f"{key} in ({listed})")(labels) == (labels.get(key) in values)
    assert parse_labels(f"{key} notin ({listed})")(labels) == (labels.get(key) not in values)
    assert parse_labels(f"{key}={values[0]}")(labels) == (labels.get(key) == values[0])
    assert parse_labels(f"{key}!={values[0]}")(labels) == (labels.get(key) != values[0])
    assert parse_labels(key)(labels) == (key in labels)
    assert parse_labels(f"!{key}")(labels) == (key not in labels)


def test_field_selectors_take_escapes() -> None:
    """A comma inside a value is written with a backslash."""
    test = parse_fields(r"a=x\,y,b!=z", supported=frozenset({"a", "b"}))
    assert test({"a": "x,y", "b": ""})
    assert not test({"a": "x", "b": ""})


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Bad_Name", "a name is small letters, digits, '-' and '.'"),
        ("x" * 254, "a name has at most 253 characters"),
        # Of a namespace.
        ("team.a", "a name of this kind has at most 63 small letters, digits and '-'"),
        ("x" * 64, "a name of this kind has at most 63 small letters, digits and '-'"),
    ],
)
def test_a_name_that_can_not_stand_is_told_its_rule(name: str, rule: str) -> None:
    """Whichever rule it breaks."""
    assert rule_of(name).startswith(rule)
