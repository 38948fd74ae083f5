"""What is wrong with a change of a queue, seen with all other queues: they are judged as one tree.

A tree that is broken already (somebody wrote where no webhook looked) may be mended step by step: what was wrong at the
same place in the same way before, and no less, is only warned of. So what a change breaks, or makes worse, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from aliquot_core.counting import agreed, counted, listed
from aliquot_core.problems import Problems
from aliquot_scheduler.admission.queue_review import QueueReview
from aliquot_scheduler.admission.verdict import AdmissionError, Verdict
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.oddities import oddities_of
from aliquot_scheduler.queues.said.overkept import guaranteed_beyond_all, kept_beyond_all
from aliquot_scheduler.queues.said.spec import QueueSpec, read_queue
from aliquot_scheduler.queues.said.things import patterns_of
from aliquot_scheduler.queues.said.tree import DEFAULT_QUEUE, UNLIMITED, models_of, plant
from aliquot_scheduler.queues.telling.status import QueueStatus, read_status

# By patterns of models, what queues that name those have to know of the cards.
HardwareOf = Callable[[Iterable[str]], Hardware]


def nothing_known(_: Iterable[str]) -> Hardware:
    """Where nobody tells of cards, nothing is said of what there is."""
    return Hardware()


def judge_queue(review: QueueReview, *, plan: Plan, hardware: HardwareOf = nothing_known) -> Verdict:
    """Judge a change; `plan` is all that there is before it."""
    if review.new is None:
        return _judge_deletion(review, plan=plan)
    problems = Problems()
    spec = read_queue(review.spec, name=review.name, problems=problems)
    if problems.found:
        return Verdict(problems=tuple(problems.found))
    after: dict[str, QueueSpec] = {**plan.specs, review.name: spec}
    before = {(problem.where, problem.kind): problem.size for problem in problems_of(plan.specs)}
    found = problems_of(after)
    still = [problem for problem in found if problem.size <= before.get((problem.where, problem.kind), -1)]
    anew = [problem for problem in found if problem not in still]
    return Verdict(
        problems=tuple(problem for problem in anew if problem.is_refused),
        warnings=(
            *(f"still: {problem}" for problem in still),
            *(str(problem) for problem in anew if not problem.is_refused),
            *oddities_of(review.name, after),
            *_of_the_cards(review.name, after, hardware=hardware),
            *_pods_left_behind(spec, plan=plan),
        ),
    )


def _of_the_cards(name: str, specs: Mapping[str, QueueSpec], *, hardware: HardwareOf) -> Iterator[str]:
    """That nobody else is let in any more, as its status says where more is kept than is there; models not there."""
    known = hardware(models_of(specs))
    tree = plant(specs, hardware=known)
    there = [known.there.get(pattern, (0, 0)) for pattern in patterns_of(tree.dimensions.models)]
    capacity = [amount for pair in there for amount in pair]
    kept = kept_beyond_all(tree, capacity=capacity, or_all=True).get(name, ())
    yield from kept or guaranteed_beyond_all(name, tree, capacity=capacity)
    for pattern in specs[name].models if any(there[0]) and not kept else ():
        if not any(known.there.get(pattern, (0, 0))):
            yield (
                f"queue {name}, spec.models[{pattern}]: no GPU that is there now is of it; it is compared with whole "
                "names: '*H100*' takes all that have H100 in theirs"
            )


def _judge_deletion(review: QueueReview, *, plan: Plan) -> Verdict:
    children = sorted(name for name, spec in plan.specs.items() if spec.parent == review.name)
    if children:
        return Verdict(
            problems=(
                AdmissionError(
                    f"queues hang below it: {listed(children)}",
                    where=f"queue {review.name}",
                    remedy="delete them first, or give them another parent",
                ),
            )
        )
    if review.name == DEFAULT_QUEUE and _holds_up(DEFAULT_QUEUE, plan=plan):
        return Verdict(
            problems=(
                AdmissionError(
                    "without it pods that name no queue come in by a default one of no limits, and this one limits or "
                    "holds them",
                    where=f"queue {review.name}",
                    remedy="take its limits and stop out first; or change it in place, not by deleting it (--force)",
                ),
            )
        )
    return Verdict(warnings=tuple(_left_by_deletion(review, plan=plan)))


def _holds_up(name: str, *, plan: Plan) -> bool:
    """Whether it, or one above it, has a limit or lets nobody in."""
    tree = plan.tree
    nodes = [tree.nodes[one] for one in tree.path(name)] if name in plan.specs else []
    return any(node.stop or min(node.ceiling) < UNLIMITED for node in nodes)


def _left_by_deletion(review: QueueReview, *, plan: Plan) -> Iterator[str]:
    yield from _pods_of(_status_before(review))
    homes = sorted(namespace for namespace, queue in plan.homes.items() if queue == review.name)
    if homes:
        yield f"new pods are refused in the namespaces whose label names it: {listed(homes)}"


def _pods_of(status: QueueStatus) -> Iterator[str]:
    """What becomes of them; a status is some seconds old, so it is told of when it speaks."""
    if not status.at:
        yield "its status is not written yet, so it is not known whether pods wait or run in it"
    if count := status.waiting:
        subject = f"the {counted(count, 'pod')} that {agreed(count, 'waits', 'wait')} in it"
        yield (
            f"{subject} {agreed(count, 'is', 'are')} let in nowhere until "
            f"{agreed(count, 'it, or its namespace, names', 'they, or their namespaces, name')} another "
            f"(as of {status.at})"
        )
    if status.used.compute or status.used.memory:
        amounts = f"{status.used.compute} % and {status.used.memory} MiB"
        yield f"its pods go on with {amounts}, counted for no queue (as of {status.at})"


def _pods_left_behind(spec: QueueSpec, *, plan: Plan) -> Iterator[str]:
    """A queue that gets its first child lets its own pods in no more."""
    parent = spec.parent
    if parent not in plan.specs or any(other.parent == parent for other in plan.specs.values()):
        return
    at_home = sorted(namespace for namespace, queue in plan.homes.items() if queue == parent)
    if at_home:
        yield (
            f"queue {parent} has queues below it from now on, where its pods must wait; "
            f"namespaces whose label still names it: {listed(at_home)}"
        )


def _status_before(review: QueueReview) -> QueueStatus:
    raw: Mapping[str, object] = review.old.status if review.old else {}
    return read_status(raw) or QueueStatus()
