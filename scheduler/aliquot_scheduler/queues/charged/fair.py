"""What each queue could get by what all ask, as it is shown and as nodes are kept by it: of what pods can have.

By hand, for compute, and for memory likewise:

1. There is what pods can have: of nodes that take none for now (cordoned) only what is in use there. What is asked by
   who could come in only by a node that is yet to come (of a queue that grows) counts for nothing.
2. Who may lie on GPUs of one model alone asks for those. Of each model it is worked out what queues are due of it: by
   their limits for that model, by their guarantees of it, or of all where those are more, and by their weights of all.
   What is asked beyond that counts for nothing.
3. No queue has more than there is, less what its limits for models keep from it.
4. Of what is left of all that is asked, shares are those of `shares.py`.

Models overlap where patterns do. Of those inside a wider one 2 and 3 are worked out first, and hold in that one as in
all there is; each kind of GPU is taken off once, so that it comes to the most. That is exact where patterns lie inside
others or beside them; where two share some kinds and each has others, a share may be shown that is too large. Which
GPUs pods name beside the models of which queues speak is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from operator import add, sub

import msgspec

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.charged.shares import Amount, Terms, divided, own_part, rounded, terms_of
from aliquot_scheduler.queues.said.tree import Tree

# The first dimension that is of a model.
_FIRST = 2
# Kinds of GPUs, and how much of them.
_Part = tuple[frozenset[int], Amount]
# Of more patterns that cross one another the wide ones count alone: to try all ways would take too long.
_MOST_CROSSING = 8


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What pods can have."""

    # By dimension of GPUs.
    amounts: tuple[int, ...]
    # Of each model that queues name, in their order: which kinds of GPUs are of it.
    kinds: tuple[frozenset[int], ...] = ()


def due_of(ledger: Ledger, *, dimension: int, reach: Reach) -> dict[str, Fraction]:
    """Everybody's share of compute or memory, by what all use and ask at this moment."""
    tree = ledger.tree
    demand = {name: _demand(ledger, account) for name, account in ledger.accounts.items()}
    return exact_fair_shares(tree, dimension=dimension, reach=reach, demand=demand)


def _demand(ledger: Ledger, account: Account) -> tuple[int, ...]:
    """Of pods in the queue itself; one that has children may have some still from before."""
    if children := account.node.children:
        below = zip(*(ledger.accounts[child].used for child in children), strict=True)
        return tuple(map(sub, account.used, map(sum, below)))
    # Of all GPUs whatever could be had of what is asked, of models only by those who have no others.
    could_have = map(sub, account.asked[:2], account.awaiting[:2])
    return tuple(map(add, account.used, (*could_have, *account.tied[2:])))


def fair_shares(tree: Tree, *, dimension: int, reach: Reach, demand: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The same of such a demand, in whole numbers."""
    return rounded(tree, exact_fair_shares(tree, dimension=dimension, reach=reach, demand=demand))


def exact_fair_shares(
    tree: Tree, *, dimension: int, reach: Reach, demand: Mapping[str, Sequence[int]]
) -> dict[str, Fraction]:
    """`demand` is what is used and asked in each queue itself, by dimension; of models, what has no GPUs of others."""
    of_all, cut = terms_of(tree, dimension), _Cut(reach)
    for of_model in sorted(range(dimension + 2, tree.dimensions.cards, 2), key=cut.width):
        terms = cut.terms(_of_model(tree, of_model, of_all=of_all), of_model)
        due = divided(tree, terms, capacity=reach.amounts[of_model], demand=cut.demand(demand, of_model))
        cut.note(of_model, terms, {name: own[of_model] - own_part(tree, due, name) for name, own in demand.items()})
    terms = cut.terms(of_all, dimension)
    return divided(tree, terms, capacity=reach.amounts[dimension], demand=cut.demand(demand, dimension))


class _Cut:
    """What models keep from queues: of those that lie inside, in a wider one and in all there is."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        # By model: what limits keep of it from each queue, and what pods of its own ask of it beyond what is due.
        self._kept: dict[int, dict[str, Amount]] = {}
        self._beyond: dict[int, dict[str, Fraction]] = {}

    def width(self, dimension: int) -> int:
        """Who lies inside others comes before those."""
        return len(self._kinds(dimension))

    def note(self, of_model: int, terms: Mapping[str, Terms], beyond: Mapping[str, Fraction]) -> None:
        """It was worked out by these terms what is due of a model."""
        there = self._reach.amounts[of_model]
        self._kept[of_model] = {name: there - one.ceiling for name, one in terms.items()}
        self._beyond[of_model] = dict(beyond)

    def terms(self, terms: Mapping[str, Terms], dimension: int) -> dict[str, Terms]:
        """No queue has more than there is, less what limits inside keep from it."""
        there = self._reach.amounts[dimension]
        kept = {name: self._taken_off(self._kept, name, dimension) for name in terms}
        return {name: one._replace(ceiling=min(one.ceiling, there - kept[name])) for name, one in terms.items()}

    def demand(self, demand: Mapping[str, Sequence[int]], dimension: int) -> dict[str, Amount]:
        """What is asked beyond what is due inside counts for nothing."""
        return {
            name: amounts[dimension] - self._taken_off(self._beyond, name, dimension)
            for name, amounts in demand.items()
        }

    def _taken_off(self, parts: Mapping[int, Mapping[str, Amount]], name: str, dimension: int) -> Amount:
        """The most that parts of models inside come to, each kind of GPU once."""
        inside = [model for model in parts if dimension < _FIRST or self._kinds(model) <= self._kinds(dimension)]
        return _most([(self._kinds(model), parts[model][name]) for model in inside if parts[model][name] > 0])

    def _kinds(self, of_model: int) -> frozenset[int]:
        return self._reach.kinds[of_model // 2 - 1]


def _of_model(tree: Tree, of_model: int, *, of_all: Mapping[str, Terms]) -> dict[str, Terms]:
    return {
        name: one._replace(guarantee=max(one.guarantee, of_all[name].guarantee), weight=of_all[name].weight)
        for name, one in terms_of(tree, of_model).items()
    }


def _most(parts: Sequence[_Part]) -> Amount:
    total: Amount = 0
    for (kinds, part), *others in map(_widest_first, _that_touch(parts)):
        beside = [one for one in others if kinds.isdisjoint(one[0])]
        # What lies inside the widest of them leaves nothing beside it, so only patterns that cross cost more with each.
        instead = part + _most(beside) if len(beside) <= _MOST_CROSSING else part
        total += max(instead, _most(others))
    return total


def _widest_first(parts: Iterable[_Part]) -> list[_Part]:
    return sorted(parts, key=lambda one: (-len(one[0]), sorted(one[0]), one[1]))


def _that_touch(parts: Iterable[_Part]) -> list[list[_Part]]:
    """In groups, none of which has a kind that another has too."""
    groups: list[tuple[frozenset[int], list[_Part]]] = []
    for kinds, part in parts:
        apart = [group for group in groups if group[0].isdisjoint(kinds)]
        touching = [group for group in groups if not group[0].isdisjoint(kinds)]
        together = kinds.union(*(group[0] for group in touching))
        groups = [*apart, (together, [(kinds, part), *(one for group in touching for one in group[1])])]
    return [group for _, group in groups]
