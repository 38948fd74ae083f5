"""Who is due how much: guarantees first, then what is left by weight, exactly.

By hand, for one dimension and the children of one queue:

1. A child needs what is used and asked below it, at most its ceiling; and what pods of its own use, if it got children
   while they ran.
2. First each gets its need up to its guarantee. What is kept idle, here or below (lending limits say so), is part of
   that, and nobody else gets it.
3. What is left goes to those who still need something, the higher priority first, and among equals by weight: all
   levels rise together, each as fast as its weight, and who has enough stops (max-min, "water-filling").
4. If there is less than the guarantees, they are met in proportion to what each is due, likewise.
5. The same again inside each child; pods of its own have what its children leave of its share.

Shares are exact fractions, so two queues that ask 0.9 of one GPU get 0.5 each, and eight on four GPUs get 0.5 each
(where shares are rounded to whole GPUs, some starve). Only at the end are they rounded, to whole numbers that
sum up: each share is within 1 of the exact one, and a queue's share is the sum of its children's and its own pods'.

What must always hold: no share is above need or ceiling; the shares and what is kept idle are at most what there is;
nothing is left over that anybody could use; asking for more never gives less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from math import floor
from typing import NamedTuple

import msgspec

from aliquot_scheduler.queues.said.tree import ROOT, Node, Tree

_NOTHING = Fraction(0)
# Beside a queue's children: its own pods. No child has the root's name.
_OWN = ROOT

Amount = Fraction | int


class _Due(msgspec.Struct, kw_only=True):
    """What a queue needs and may claim of one dimension."""

    node: Node
    weight: int
    # What its pods use or ask, up to its ceiling.
    need: Amount
    # That and what is kept idle, up to its ceiling: more would be of no use to it.
    useful: Amount
    # What it gets before anybody borrows.
    first: Amount


class Terms(NamedTuple):
    """By which a queue has its part of one dimension."""

    guarantee: int
    ceiling: Amount
    kept: int
    weight: int


def terms_of(tree: Tree, dimension: int) -> dict[str, Terms]:
    """As each queue says them."""
    return {
        name: Terms(node.guarantee[dimension], node.ceiling[dimension], node.kept[dimension], node.weight[dimension])
        for name, node in tree.nodes.items()
    }


def shares(tree: Tree, *, dimension: int, capacity: int, demand: Mapping[str, int]) -> dict[str, int]:
    """Everybody's share of one dimension in whole numbers; `demand` is what is used and asked in each queue itself."""
    return rounded(tree, exact_shares(tree, dimension=dimension, capacity=capacity, demand=demand))


def exact_shares(tree: Tree, *, dimension: int, capacity: int, demand: Mapping[str, int]) -> dict[str, Fraction]:
    """Everybody's share of one dimension."""
    return divided(tree, terms_of(tree, dimension), capacity=capacity, demand=demand)


def divided(
    tree: Tree, terms: Mapping[str, Terms], *, capacity: int, demand: Mapping[str, Amount]
) -> dict[str, Fraction]:
    """Everybody's share by such terms."""
    order = _downwards(tree)
    due: dict[str, _Due] = {}
    for name in reversed(order):
        node = tree.nodes[name]
        due[name] = _due(node, terms[name], asked=demand.get(name, 0), below=[due[c] for c in node.children])
    given: dict[str, Amount] = {ROOT: min(capacity, due[ROOT].useful)}
    for name in order:
        if children := tree.nodes[name].children:
            given |= _divide(given[name], [due[child] for child in children])
    share: dict[str, Fraction] = {}
    for name in reversed(order):
        children = tree.nodes[name].children
        if children:
            left = given[name] - sum(given[child] for child in children)
            share[name] = sum((share[child] for child in children), Fraction(min(left, demand.get(name, 0))))
        else:
            share[name] = Fraction(min(given[name], due[name].need))
    return share


def own_part(tree: Tree, share: Mapping[str, Fraction], name: str) -> Fraction:
    """What of a queue's share is due to pods of its own."""
    return share[name] - sum((share[child] for child in tree.nodes[name].children), _NOTHING)


def rounded(tree: Tree, exact: Mapping[str, Fraction]) -> dict[str, int]:
    """The same in whole numbers that sum up."""
    found = {ROOT: floor(exact[ROOT])}
    for name in _downwards(tree):
        if children := tree.nodes[name].children:
            parts = _round(
                found[name], {child: exact[child] for child in children} | {_OWN: own_part(tree, exact, name)}
            )
            found |= {child: parts[child] for child in children}
    return found


def equal_shares(total: Fraction, *, needs: Mapping[str, int]) -> dict[str, Fraction]:
    """What each of those gets who are equals, and need so much."""
    return {
        name: Fraction(part) for name, part in _fill(total, {name: (1, need) for name, need in needs.items()}).items()
    }


def _downwards(tree: Tree) -> list[str]:
    order = [ROOT]
    for name in order:
        order.extend(tree.nodes[name].children)
    return order


def _due(node: Node, terms: Terms, *, asked: Amount, below: Sequence[_Due]) -> _Due:
    need = min(terms.ceiling, asked + sum(child.need for child in below))
    idle = sum(child.useful - child.need for child in below)
    useful = min(terms.ceiling, max(need + idle, terms.kept))
    return _Due(
        node=node,
        weight=terms.weight,
        need=need,
        useful=useful,
        first=max(min(terms.guarantee, useful), sum(child.first for child in below)),
    )


def _divide(total: Amount, due: Sequence[_Due]) -> dict[str, Amount]:
    """What each of these siblings may use or keep of so much."""
    promised = sum(one.first for one in due)
    if promised > total:
        return _fill(total, {one.node.name: (one.first, one.first) for one in due})
    given = {one.node.name: one.first for one in due}
    left = total - promised
    for _, band in groupby(sorted(due, key=_band), key=_band):
        wants = {one.node.name: (one.weight, one.useful - one.first) for one in band}
        for name, more in _fill(left, wants).items():
            given[name] += more
            left -= more
    return given


def _band(one: _Due) -> int:
    return -one.node.priority


def _fill(total: Amount, wants: Mapping[str, tuple[Amount, Amount]]) -> dict[str, Amount]:
    """Let all levels rise by weight until all is given; `wants` is each one's weight and the most it takes.

    Most of it are whole numbers, which are ten times as quick as fractions.
    """
    filled: dict[str, Amount] = dict.fromkeys(wants, 0)
    rising = sorted((_part(most, weight), name) for name, (weight, most) in wants.items() if weight and most)
    weights = sum(wants[name][0] for _, name in rising)
    for number, (full, name) in enumerate(rising):
        if full * weights > total:
            # From here on nobody gets enough.
            level = _part(total, weights)
            return filled | {late: level * wants[late][0] for _, late in rising[number:]}
        weight, filled[name] = wants[name]
        total -= filled[name]
        weights -= weight
    return filled


def _part(amount: Amount, of: Amount) -> Amount:
    return amount if of == 1 else Fraction(amount) / of


def _round(total: int, exact: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole numbers that sum up to `total`, each within 1: the largest parts lost are given back first."""
    rounded = {name: floor(share) for name, share in exact.items()}
    spare = total - sum(rounded.values())
    for name in sorted(exact, key=lambda name: (rounded[name] - exact[name], name))[:spare]:
        rounded[name] += 1
    return rounded
