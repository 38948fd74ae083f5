"""Label and field selectors: text to a predicate.

Label grammar: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, joined by commas; all must hold.
`!=` and `notin` also match objects without the label. Field grammar: `path=value`, `path!=value`, joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .failures import bad_request

Predicate = Callable[[Mapping[str, str]], bool]

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PRESENCE = re.compile(rf"(!?)\s*({_KEY})")
_ORDER = re.compile(rf"({_KEY})\s*([<>])\s*(-?[0-9]+)")
_ONE_VALUE = re.compile(_VALUE)


def always(_: Mapping[str, str]) -> bool:
    """Match everything."""
    return True


def parse_labels(text: str) -> Predicate:
    """Turn a label selector into a predicate over labels."""
    if not text.strip():
        return always
    tests = [_label_test(part.strip(), whole=text) for part in _split(text)]
    return tests[0] if len(tests) == 1 else lambda labels: all(test(labels) for test in tests)


def _split(text: str) -> list[str]:
    # Commas inside the parentheses of a set belong to the set.
    return re.split(r",(?![^()]*\))", text)


def _label_test(part: str, *, whole: str) -> Predicate:
    if found := _EQUALITY.fullmatch(part):
        return _equality(*found.groups())
    if found := _SET.fullmatch(part):
        return _membership(found[1], found[2], found[3], whole=whole)
    if found := _ORDER.fullmatch(part):
        return _comparison(found[1], found[2], int(found[3]))
    if found := _PRESENCE.fullmatch(part):
        key, wanted = found[2], not found[1]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f'unable to parse requirement "{part}" of label selector "{whole}"')


def _equality(key: str, operator: str, value: str) -> Predicate:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _membership(key: str, operator: str, listed: str, *, whole: str) -> Predicate:
    values = {value.strip() for value in listed.split(",")}
    if not all(_ONE_VALUE.fullmatch(value) for value in values):
        raise bad_request(f'a value in label selector "{whole}" is not a label value')
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _comparison(key: str, operator: str, bound: int) -> Predicate:
    def test(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?[0-9]+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return test


def parse_fields(text: str, *, supported: frozenset[str]) -> Predicate:
    """Turn a field selector into a predicate over a kind's selectable fields."""
    tests = [_field_test(part, supported=supported) for part in _split_fields(text)]
    if not tests:
        return always
    return tests[0] if len(tests) == 1 else lambda fields: all(test(fields) for test in tests)


def _split_fields(text: str) -> list[str]:
    # A backslash hides a comma, an equals sign or itself inside a value.
    return [part for part in re.split(r"(?<!\\),", text) if part]


def _field_test(part: str, *, supported: frozenset[str]) -> Predicate:
    found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
    if found is None:
        raise bad_request(f'invalid selector: "{part}"; can\'t understand it')
    path, operator, value = found[1], found[2], re.sub(r"\\(.)", r"\1", found[3])
    if path not in supported:
        known = ", ".join(sorted(supported))
        raise bad_request(f"field label not supported: {path}; this kind knows {known}")
    if operator == "!=":
        return lambda fields: fields.get(path, "") != value
    return lambda fields: fields.get(path, "") == value
