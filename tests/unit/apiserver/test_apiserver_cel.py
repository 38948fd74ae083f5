"""Conditions in CEL, as webhooks' configurations write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_standalone.apiserver.cel import CelError, compile_cel

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
    ],
)
def test_what_can_not_be_said(condition: str) -> None:
    """What is missing, or has no meaning, is an error and not an answer."""
    with pytest.raises(CelError):
        compile_cel(condition).holds(NAMES)


@pytest.mark.parametrize(
    "condition", ["", "a.", "a ==", "(a", "a.explode()", "type(a)", "'open", "a b", "[1, 2", "(" * 100, "a ~ b", "a?b"]
)
def test_what_can_not_be_understood(condition: str) -> None:
    """It is refused when the configuration is written."""
    with pytest.raises(CelError):
        compile_cel(condition)


@given(st.text(alphabet="ab.?()[]{}'\"!=<>&|+-,: 01intrue", max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    """Whatever is written, it holds, does not hold, or is a CelError."""
    try:
        held = compile_cel(text).holds(NAMES)
    except CelError:
        return
    assert held in {True, False}
