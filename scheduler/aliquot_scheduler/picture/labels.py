"""Labels of nodes by key and value, so that a test is asked of each value once and not of each node.

Theory of operation. Most tests name values: the rows that bear one are at hand. Where they are many a mask of them is
made, once for each value and question; few are put down one by one. To compare numbers each value is read once.

What must always hold: an answer is the one that `node_rules.matches` gives of each node that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np

from aliquot_core.node_rules import NAME_FIELD, Requirement, Term, Wanted, number_of
from aliquot_core.objects import Node
from aliquot_scheduler.picture.grid import Bools

# To write so many rows down takes as long as to join a mask of a thousand.
_FEW = 16
_NOWHERE: Mapping[str, set[int]] = {}


class Labels:
    """The rows that bear each value of each key; names are kept as the only key of their own kind."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[str, set[int]]] = {}
        self._names: dict[str, set[int]] = {}

    def put(self, row: int, *, before: Node | None, after: Node | None) -> None:
        """A row's node is another one, or has other labels; None where nobody is."""
        if before is not None:
            self._names.pop(before.metadata.name)
        if after is not None:
            self._names[after.metadata.name] = {row}
        old = before.metadata.labels if before else {}
        new = after.metadata.labels if after else {}
        for key, value in old.items():
            if new.get(key) != value:
                self._drop(key, value, row)
        for key, value in new.items():
            if old.get(key) != value:
                self._by_key.setdefault(key, {}).setdefault(value, set()).add(row)

    def suiting(self, wanted: Wanted, *, rows: int) -> Bools:
        """The rows of so many whose nodes are what is wanted."""
        return _Question(labels=self._by_key, names={NAME_FIELD: self._names}, rows=rows).of(wanted)

    def _drop(self, key: str, value: str, row: int) -> None:
        values = self._by_key[key]
        values[value].discard(row)
        if not values[value]:
            del values[value]
        if not values:
            del self._by_key[key]


_ByKey = Mapping[str, Mapping[str, set[int]]]


class _Question:
    """One pod's tests, answered for all rows; what two of them need is worked out once."""

    def __init__(self, *, labels: _ByKey, names: _ByKey, rows: int) -> None:
        self._labels = labels
        self._names = names
        self._rows = rows
        self._masks: dict[int, Bools] = {}
        self._numbers: dict[int, list[tuple[int, set[int]]]] = {}

    def of(self, wanted: Wanted) -> Bools:
        """By row."""
        found = self._bearing(self._names[NAME_FIELD].values())
        for key, value in wanted.selector:
            found &= self._any(self._labels, key, [value])
        if wanted.terms is not None:
            some = np.zeros(self._rows, dtype=np.bool_)
            for term in wanted.terms:
                some |= self._matching(term)
            found &= some
        return found

    def _matching(self, term: Term) -> Bools:
        """All tests of it hold; one without any matches nothing."""
        found = np.full(self._rows, bool(term.match_expressions or term.match_fields), dtype=np.bool_)
        for labelled in term.match_expressions:
            found &= self._holding(labelled, self._labels)
        for named in term.match_fields:
            found &= self._holding(named, self._names)
        return found

    def _holding(self, test: Requirement, there: _ByKey) -> Bools:
        match test.operator:
            case "In":
                return self._any(there, test.key, test.values)
            case "NotIn":
                return ~self._any(there, test.key, test.values)
            case "Exists":
                return self._all(there.get(test.key, _NOWHERE))
            case "DoesNotExist":
                return ~self._all(there.get(test.key, _NOWHERE))
            case "Gt" | "Lt":
                return self._compared(test, there)
            case _:
                return np.zeros(self._rows, dtype=np.bool_)

    def _any(self, there: _ByKey, key: str, values: Iterable[str]) -> Bools:
        found, few = np.zeros(self._rows, dtype=np.bool_), list[int]()
        theirs = there.get(key, _NOWHERE)
        for rows in (theirs[value] for value in values if value in theirs):
            if len(rows) <= _FEW:
                few.extend(rows)
            else:
                found |= self._mask(rows, [rows])
        found[few] = True
        return found

    def _all(self, values: Mapping[str, set[int]]) -> Bools:
        return self._mask(values, values.values())

    def _mask(self, whose: object, rows: Iterable[set[int]]) -> Bools:
        """Of these rows; `whose` they are lives as long as the question does."""
        if (kept := self._masks.get(id(whose))) is None:
            kept = self._masks[id(whose)] = self._bearing(rows)
        return kept

    def _bearing(self, values: Iterable[set[int]]) -> Bools:
        found = np.zeros(self._rows, dtype=np.bool_)
        found[list(chain.from_iterable(values))] = True
        return found

    def _compared(self, test: Requirement, there: _ByKey) -> Bools:
        bound = number_of(test.values[0]) if test.values else None
        if bound is None:
            return np.zeros(self._rows, dtype=np.bool_)
        above = test.operator == "Gt"
        numbers = self._numbers_of(there.get(test.key, _NOWHERE))
        return self._bearing(rows for value, rows in numbers if (value > bound if above else value < bound))

    def _numbers_of(self, values: Mapping[str, set[int]]) -> list[tuple[int, set[int]]]:
        if (kept := self._numbers.get(id(values))) is None:
            read = ((number_of(value), rows) for value, rows in values.items())
            kept = self._numbers[id(values)] = [(value, rows) for value, rows in read if value is not None]
        return kept
