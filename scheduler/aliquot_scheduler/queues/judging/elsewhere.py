"""A pod that names no model may lie on any: where cards of one are not to be had for it, it is kept off them.

Until it is bound it counts for each model on which it might lie. So a limit for one model, or what is held back of it
for others, would stop it though cards of others idle. It is asked once more without that model; of a gang as few as it
takes, from the last on, since the first may have the choice. Once it is let in it counts for those alone on which it
was promised room, unless another node may have to be chosen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from aliquot_scheduler.queues.judging.rules import Refusal, Rules
from aliquot_scheduler.queues.said.tree import Dimensions
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, summed

# The same pod, kept off cards of a model; None if it would have none then.
Without = Callable[[Waiter, str], Waiter | None]


def admissible(
    candidate: Candidate, *, rules: Rules, dimensions: Dimensions, without: Without
) -> tuple[Candidate, Refusal | None]:
    """The candidate as it may be let in, kept off models where it has to be; or why it may not as it is."""
    first = refusal = rules.refusal(candidate)
    tried: Candidate | None = candidate
    while refusal and tried:
        tried = kept_off(tried, refusal.dimension, dimensions=dimensions, without=without)
        if tried and (refusal := rules.refusal(tried)) is None:
            return tried, None
    return candidate, first


def kept_off(candidate: Candidate, dimension: int, *, dimensions: Dimensions, without: Without) -> Candidate | None:
    """One of them less on cards of the model that this dimension is about; None if nobody can do without those."""
    model = dimensions.model_of(dimension)
    for place in reversed(range(len(candidate.members))) if model else ():
        member = candidate.members[place]
        other = without(member, model) if member.amounts[dimension] else None
        if other is not None:
            members = (*candidate.members[:place], other, *candidate.members[place + 1 :])
            return Candidate(members=members, amounts=summed(members))
    return None


def as_few_kept_off(
    members: Sequence[Waiter],
    dimension: int,
    *,
    dimensions: Dimensions,
    without: Without,
    enough: Callable[[Sequence[Waiter]], bool],
) -> tuple[Waiter, ...] | None:
    """These, from the last on as few as it takes kept off the model of a dimension; None if that is not enough."""
    model = dimensions.model_of(dimension)
    able = [place for place, one in enumerate(members) if one.amounts[dimension]] if model else []
    others = {place: other for place in able if (other := without(members[place], model)) is not None}
    places = sorted(others, reverse=True)

    def kept(count: int) -> tuple[Waiter, ...]:
        off = set(places[:count])
        return tuple(others[place] if place in off else one for place, one in enumerate(members))

    # Who is kept off asks no more of it than before.
    counts = range(1, len(places) + 1)
    found = bisect_left(counts, True, key=lambda count: enough(kept(count)))
    return kept(counts[found]) if found < len(counts) else None


def may_go_elsewhere(waiter: Waiter) -> bool:
    """Whether kube-scheduler may find that it can't lie where it was promised room.

    Of what it says of other pods we know nothing; nor why a turn was lost.
    """
    spec = waiter.pod.spec
    of_pods = {"podAffinity", "podAntiAffinity"} & (spec.affinity or {}).keys()
    return bool(waiter.lost or of_pods or spec.topology_spread_constraints)
