"""Whether a pod may wait in the queue that it, or its namespace, names: told at once, not after it has waited.

Refused is what can't be meant: a queue that is not there, that has others below it, that does not take pods of this
namespace, or that is being drained. Warned of is what an operator may yet change: a held queue, and a limit or a
guarantee that the pod is beyond by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot_core.counting import listed
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.problems import Problems
from aliquot_core.request import PodRequest, read_request
from aliquot_scheduler.admission.verdict import AdmissionError, Verdict
from aliquot_scheduler.queues.said.entry import Plan, open_to, why_barred
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Node
from aliquot_scheduler.queues.said.units import bare, spoken

_UNTIL_RAISED = "it waits until that is raised"


def judge_place(pod: Pod, *, namespace: str, plan: Plan, names: Names) -> Verdict:
    """Judge where a pod is to wait."""
    problems = Problems()
    request = read_request(pod, names=names, problems=problems)
    if problems.found or not request.containers:
        return Verdict()
    queue, home = request.queue or plan.home(namespace), plan.home(namespace)
    where = _where(request, namespace=namespace, plan=plan, names=names)
    if why := why_barred(queue, tree=plan.tree, namespace=namespace, home=home):
        return Verdict(problems=(_barred(why, where=where, namespace=namespace, plan=plan, names=names),))
    leaf = plan.tree.nodes[queue]
    if leaf.stop == "drain":
        return Verdict(problems=(_drained(leaf, where=where, plan=plan),))
    return Verdict(warnings=tuple(_warnings(leaf, request, plan=plan)))


def _where(request: PodRequest, *, namespace: str, plan: Plan, names: Names) -> str:
    if request.queue:
        return f"label {names.queue}"
    labelled = f"label {names.queue} of namespace {namespace}"
    return labelled if namespace in plan.homes else f"namespace {namespace} without label {names.queue}"


def _barred(why: str, *, where: str, namespace: str, plan: Plan, names: Names) -> AliquotError:
    choice = [
        name
        for name in open_to(namespace, tree=plan.tree, home=plan.home(namespace))
        if plan.tree.nodes[name].stop != "drain"
    ]
    which = f"queue {choice[0]}" if len(choice) == 1 else f"one of the queues {listed(choice)}"
    own = f"write {which} into the pod's label {names.queue}" if choice else ""
    others = f"an operator can add namespace {namespace} to spec.namespaces of a queue, or label the namespace"
    return AdmissionError(why, where=where, remedy=f"{own}; {others}" if own else others)


def _drained(leaf: Node, *, where: str, plan: Plan) -> AliquotError:
    return AdmissionError(
        f"queue {leaf.name} takes no pods: {_stopper(leaf, plan=plan)} is being drained",
        where=where,
        remedy="name another queue, or wait until an operator takes its spec.stop away",
    )


def _stopper(leaf: Node, *, plan: Plan) -> str:
    """The queue that stops this one, as its reader is told of it."""
    stopper = plan.tree.stopper(leaf)
    return "it" if stopper == leaf.name else f"queue {stopper} above it"


def _warnings(leaf: Node, request: PodRequest, *, plan: Plan) -> Iterator[str]:
    if leaf.stop:
        yield f"queue {leaf.name} lets nobody in for now: {_stopper(leaf, plan=plan)} is held"
    dimensions = plan.tree.dimensions
    amounts = dict(zip((COMPUTE, MEMORY), request.least, strict=True))
    for dimension, amount in amounts.items():
        asked = spoken(amount, dimension, of=dimensions)
        path = [plan.tree.nodes[name] for name in leaf.path if name]
        tight = next((node for node in path if amount > node.ceiling[dimension]), None)
        if tight:
            most = bare(tight.ceiling[dimension], dimension, of=dimensions)
            yield f"it asks {asked}, and queue {tight.name} may never have more than {most}: {_UNTIL_RAISED}"
        elif plan.specs and not request.preemptible and _unsure(leaf, dimension, amounts):
            due = bare(leaf.guarantee[dimension], dimension, of=dimensions)
            yield (
                f"it asks {asked} never to be taken back, and queue {leaf.name} is guaranteed {due}: {_UNTIL_RAISED}"
            )


def _unsure(leaf: Node, dimension: int, amounts: Mapping[int, int]) -> bool:
    """By what the queue says itself; what goes with it in the other dimension the cards decide."""
    if not any(leaf.guarantee):
        # Nothing is guaranteed of either: told once, of what is asked.
        return dimension == (COMPUTE if amounts[COMPUTE] else MEMORY)
    said = (leaf.spec.compute, leaf.spec.memory)[dimension].guarantee is not None
    return said and amounts[dimension] > leaf.guarantee[dimension]
