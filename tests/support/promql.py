"""As much of PromQL as our alerts and panels use: which metrics, which labels. A word that is neither is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

_FUNCTIONS = {
    *(
        "abs",
        "sum",
        "min",
        "max",
        "rate",
        "increase",
        "avg_over_time",
        "max_over_time",
        "histogram_quantile",
        "absent",
        "time",
    ),
}
_GROUPING = {"by", "on", "without", "ignoring", "group_left", "group_right"}
_OPERATORS = {"or", "and", "unless", "bool"}
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)')
_GROUPED = re.compile(rf"\b({'|'.join(_GROUPING)})\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset \d+[smhd]")
_WORD = re.compile(r"[a-zA-Z_:][\w:]*")
_RESULT = re.compile(r"\b(?:sum|min|max)\s+by\s*\(([^)]*)\)")


class NotUnderstoodError(ValueError):
    """An expression that says more than is read here."""


class Matcher(msgspec.Struct, frozen=True, kw_only=True):
    """`label="value"` of a metric."""

    metric: str
    label: str
    exact: bool
    value: str


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression asks for."""

    metrics: frozenset[str]
    matchers: tuple[Matcher, ...]
    # Labels that it groups or joins by.
    grouped: frozenset[str]
    # Those that its result has, where it says so; else all that its metrics have.
    result: frozenset[str] | None


def read(text: str) -> Expression:
    """Take an expression apart."""
    matchers = tuple(_matchers(text))
    grouped = frozenset(label for _, labels in _GROUPED.findall(text) for label in _split(labels))
    bare = _RANGE.sub(" ", _GROUPED.sub(" ", _SELECTOR.sub(r"\1", text)))
    words = {word for word in _WORD.findall(bare) if not _is_word_of_the_language(word, bare)}
    if strange := {word for word in words if not word.startswith(("aliquot_", "up"))}:
        raise NotUnderstoodError(f"{sorted(strange)} in {text}")
    first = _RESULT.match(text.removeprefix("histogram_quantile(0.99, "))
    named = frozenset(_split(first[1])) if first else frozenset() if text.startswith("sum(") else None
    return Expression(metrics=frozenset(words), matchers=matchers, grouped=grouped, result=named)


def _matchers(text: str) -> Iterator[Matcher]:
    for metric, inside in _SELECTOR.findall(text):
        found = list(_MATCHER.finditer(inside))
        if "".join(each[0] for each in found) != inside:
            raise NotUnderstoodError(f"{{{inside}}} in {text}")
        for each in found:
            yield Matcher(metric=metric, label=each[1], exact=each[2] in {"=", "!="}, value=each[3])


def _is_word_of_the_language(word: str, text: str) -> bool:
    called = re.search(rf"\b{word}\s*\(", text) is not None
    return word in _OPERATORS or (word in _FUNCTIONS and (called or word in {"sum", "min", "max"}))


def _split(labels: str) -> list[str]:
    return [label.strip() for label in labels.split(",") if label.strip()]


def known(samples: Mapping[str, Mapping[str, set[str]]], matcher: Matcher) -> bool:
    """Whether the metric ever has such a value of the label."""
    values = samples[matcher.metric].get(matcher.label, set())
    if matcher.exact:
        return matcher.value in values
    return all(any(re.fullmatch(one, value) for value in values) for one in matcher.value.split("|"))
