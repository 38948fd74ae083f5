"""What each queue could get by what all ask, as it is shown and as nodes are kept by it: of what pods can have.

By hand, for compute, and for memory likewise:

1. There is what pods can have: of nodes that take none for now (cordoned) only what is in use there.
2. Who may lie on GPUs of one model alone asks for those. Of each model it is worked out what queues are due of it: by
   their limits for that model, by their guarantees of it, or of all where those are more, and by their weights of all.
   What is asked beyond that counts for nothing.
3. No queue has more than there is, less what its limits for models keep from it.
4. Of what is left of all that is asked, shares are those of `shares.py`.

Models overlap where patterns do; then it is taken off once, where it is most. Which GPUs pods name beside the models of
which queues speak is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from operator import add

import msgspec

from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.charged.shares import Terms, divided, rounded, terms_of
from aliquot_scheduler.queues.said.tree import Tree


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What pods can have."""

    # By dimension of GPUs.
    amounts: tuple[int, ...]
    # Of each model that queues name, in their order: which kinds of GPUs are of it.
    kinds: tuple[frozenset[int], ...] = ()


def due_of(ledger: Ledger, *, dimension: int, reach: Reach) -> dict[str, Fraction]:
    """Everybody's share of compute or memory, by what all use and ask at this moment."""
    tree = ledger.tree
    leaves = [account for account in ledger.accounts.values() if tree.leaf(account.node.name)]
    # Of all GPUs whatever is asked, of models only by those who have no others.
    demand = {one.node.name: tuple(map(add, one.used, (*one.asked[:2], *one.tied[2:]))) for one in leaves}
    return exact_fair_shares(tree, dimension=dimension, reach=reach, demand=demand)


def fair_shares(tree: Tree, *, dimension: int, reach: Reach, demand: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The same of such a demand, in whole numbers."""
    return rounded(tree, exact_fair_shares(tree, dimension=dimension, reach=reach, demand=demand))


def exact_fair_shares(
    tree: Tree, *, dimension: int, reach: Reach, demand: Mapping[str, Sequence[int]]
) -> dict[str, Fraction]:
    """`demand` is what leaves use and ask in each dimension; of models, what has no GPUs of others."""
    models = range(dimension + 2, tree.dimensions.cards, 2)
    there, terms = reach.amounts, terms_of(tree, dimension)
    beyond: dict[str, dict[int, Fraction]] = {leaf: {} for leaf in demand}
    for of_model in models:
        asked = {leaf: amounts[of_model] for leaf, amounts in demand.items()}
        due = divided(tree, _of_model(tree, of_model, of_all=terms), capacity=there[of_model], demand=asked)
        for leaf, amount in asked.items():
            beyond[leaf][of_model] = amount - due[leaf]
    for name, node in tree.nodes.items():
        kept_off = _taken_off(((dim, Fraction(there[dim] - node.ceiling[dim])) for dim in models), reach)
        terms[name] = terms[name]._replace(ceiling=min(terms[name].ceiling, there[dimension] - kept_off))
    left = {leaf: amounts[dimension] - _taken_off(beyond[leaf].items(), reach) for leaf, amounts in demand.items()}
    return divided(tree, terms, capacity=there[dimension], demand=left)


def _of_model(tree: Tree, of_model: int, *, of_all: Mapping[str, Terms]) -> dict[str, Terms]:
    return {
        name: one._replace(guarantee=max(one.guarantee, of_all[name].guarantee), weight=of_all[name].weight)
        for name, one in terms_of(tree, of_model).items()
    }


def _taken_off(parts: Iterable[tuple[int, Fraction]], reach: Reach) -> Fraction:
    """What parts of models come to: the largest first, and each kind of GPU once."""
    total, seen = Fraction(0), set[int]()
    for dimension, part in sorted(parts, key=lambda one: (-one[1], one[0])):
        kinds = reach.kinds[dimension // 2 - 1]
        if part > 0 and not kinds & seen:
            seen |= kinds
            total += part
    return total
