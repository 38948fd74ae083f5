"""Expressions in CEL, as webhooks' configurations and rules about places write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.cel.compiling import CelError, compile_cel

NAMES: dict[str, Any] = {
    "a": {"b": 1, "text": "gpu/x", "list": [1, 2, 3], "none": None},
    "empty": {},
    "yes": True,
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("a.b == 1", True),
        ('a["b"] != 2', True),
        ("a.b == true", False),
        ("a.b < 2 && a.b >= 1", True),
        ("!(a.b > 1)", True),
        ("a.?missing.orValue(7) == 7", True),
        ("a.?missing.?deeper.hasValue()", False),
        ("a[?'b'] == a[?'b']", True),
        ("a[?'b'] == a[?'missing']", False),
        ("empty.?list.orValue([]) + a.list == [1, 2, 3]", True),
        ("a.list.exists(x, x == 2)", True),
        ("a.list.all(x, x < 3)", False),
        ("a.list.filter(x, x > 1).size() == 2", True),
        ("a.list.map(x, x == 2) == [false, true, false]", True),
        ("a.exists(key, key.startsWith('te'))", True),
        ("'b' in a && !('c' in a) && 2 in a.list", True),
        ("has(a.b) && !has(a.c)", True),
        ("a.text.endsWith('/x') && a.text.contains('u/') && a.text.matches('^g.u')", True),
        ("yes ? a.b == 1 : a.missing == 1", True),
        ("a.missing == 1 || yes", True),
        ("yes || a.missing == 1", True),
        ("a.missing == 1 && !yes", False),
        ("a.none == null", True),
        ("{'k': 1}.k == 1", True),
        ("-1 < 0.5", True),
        ("1 + 2 * 3 - 4 == 3", True),
        ("-7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1", True),
        ("7.0 / 2.0 == 3.5 && 0.1 * a.b == 0.1", True),
        ("-(a.b + 1) == -2 && 3 - -1 == 4", True),
        ("int('8') + int(2.9) == 10 && double('0.5') < 1", True),
        ("string(1) + string(true) + string(0.5) == '1true0.5'", True),
        ("a.missing == 1 || a.b == 2 || yes", True),
        ("9223372036854775807 > 0", True),
        (" && ".join(["yes"] * 1_400), True),
    ],
)
def test_what_holds(condition: str, *, holds: bool) -> None:
    """Members, optionals, macros and the two joins mean what they mean in CEL."""
    assert compile_cel(condition).holds(NAMES) is holds


@pytest.mark.parametrize(
    "condition",
    [
        "a.missing",
        "missing",
        "a.b",
        "a.b + 'x' == 1",
        "a.missing == 1 && yes",
        "a.b.exists(x, true)",
        "1 < 'a'",
        "a.b.c",
        "1 / 0 == 1",
        "1 % 0 == 1",
        "1.5 % 1 == 0",
        "9223372036854775807 + 1 > 0",
        "'a' - 'b' == ''",
        "-a.text == 1",
        "int('x') == 1",
        f"int('{'9' * 400}') == 1",
        "int(1.0 / 0.0000001 * 99999999999999999.0) == 1",
        "double(a) == 1.0",
        "string(a) == ''",
        "a[[1]] == 1",
        "[1] in a",
        "{[1]: 1} == {}",
        "a.text.matches('(')",
        " + ".join(["1"] * 2_000) + " > 0",
    ],
)
def test_what_can_not_be_said(condition: str) -> None:
    """What is missing, or has no meaning, is an error and not an answer."""
    with pytest.raises(CelError):
        compile_cel(condition).holds(NAMES)


@pytest.mark.parametrize(
    "condition",
    [
        *("", "a.", "a ==", "(a", "a.explode()", "type(a)", "'open", "a b", "[1, 2", "(" * 100, "a ~ b", "a?b"),
        *("!" * 100, "9" * 5_000, "99999999999999999999", "x" * 10_001),
    ],
)
def test_what_can_not_be_understood(condition: str) -> None:
    """It is refused when the configuration is written."""
    with pytest.raises(CelError):
        compile_cel(condition)


@given(st.text(alphabet="ab.?()[]{}'\"!=<>&|+-*/%,: 01intrue", max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    """Whatever is written, it holds, does not hold, or is a CelError."""
    try:
        held = compile_cel(text).holds(NAMES)
    except CelError:
        return
    assert held in {True, False}


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("node.labels.disk == pod.name", {("node", "labels", "disk"), ("pod", "name")}),
        ("node.?labels.orValue(1) == node", {("node", "labels"), ("node",)}),
        ("node['labels'] == 1 || has(pod.x.y.z)", {("node", "labels"), ("pod", "x", "y")}),
        (
            "pod.a[?'b/c'].orValue('') == pod.a[pod.b] || pod[1]",
            {("pod", "a", "b/c"), ("pod", "a"), ("pod", "b"), ("pod",)},
        ),
        ("a.exists(x, x.y == z.q) && x.y", {("a",), ("z", "q"), ("x", "y")}),
        ("node.size() == 1 || node.labels.size() == 1", {("node",), ("node", "labels")}),
        ("'node.x' == \"pod.y\" && true", set()),
    ],
)
def test_what_an_expression_reads_is_known_before_it_is_asked(text: str, reads: set[tuple[str, ...]]) -> None:
    """Names with what is taken of each; a macro's own variable is none of them."""
    assert compile_cel(text).reads == reads


def test_values_are_given_as_they_are() -> None:
    """An expression need not be a condition."""
    assert compile_cel("yes ? 0.5 : a.b").value(NAMES) == 0.5
    assert compile_cel("a.list.map(x, x * 2)").value(NAMES) == [2, 4, 6]
