"""From a pod to its place in a queue: which queue, whose, and what it may come to; or why it can't wait anywhere.

A pod that can never be let in (over a limit by itself, larger than any card) is told so, and does not stand in line:
it would be the head of it for ever, and what is held back for it would never be lent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from aliquot_core.counting import agreed, counted, listed
from aliquot_core.errors import AliquotError
from aliquot_core.membership import Group
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import of_anybody
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.judging.beyond import Beyond
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.elsewhere import as_few_kept_off, may_go_elsewhere
from aliquot_scheduler.queues.judging.shapes import Shapes, kept_off
from aliquot_scheduler.queues.judging.together import Together
from aliquot_scheduler.queues.said.entry import open_to, why_barred
from aliquot_scheduler.queues.said.tree import DEFAULT_QUEUE, Tree
from aliquot_scheduler.queues.waiting.waiter import Shape, Waiter, firm_part, summed


class Enrolment:
    """Reads pods, by the tree and the cards of the moment."""

    def __init__(
        self,
        *,
        names: Names,
        cards: Cards,
        tree: Tree,
        homes: Mapping[str, str],
        user_label: str,
        before: Tree | None = None,
    ) -> None:
        """`homes` is each namespace's own queue; `user_label` says whose a pod is, else its namespace is the user.

        `before` is the tree by which those were read who are put down anew by this one.
        """
        self._names = names
        self._cards = cards
        self._tree = tree
        # Where there are no queues nobody is told apart who is never to be evicted.
        self._read_alike = before is not None and before.queueless == tree.queueless
        self._homes = homes
        self._user_label = user_label
        self._shapes = Shapes(names=names, cards=cards, dimensions=tree.dimensions)
        # By queue, namespace and its home: why its pods can't wait there.
        self._barred: dict[tuple[str, str, str], str] = {}
        self._beyond = Beyond(tree=tree, cards=cards)
        self._together = Together(picture=cards.picture, cards=cards)
        # Changes whenever a gang that could not start may do so, or the other way round.
        self.looks = 0

    def graft(self, tree: Tree) -> None:
        """Other queues, who count the same things: shapes come to what they did."""
        self._tree = tree
        self._barred.clear()
        self._beyond = Beyond(tree=tree, cards=self._cards)

    def outdated(self) -> bool:
        """Whether hardware or nodes' labels have changed so that any shape comes to something else now."""
        if not self._shapes.changed():
            return False
        self._together.forget()
        self._beyond.forget()
        self.looks += 1
        return self._shapes.work_out_anew()

    def holder(self, pod: Pod) -> Waiter | None:
        """The pod as one that was let in, where it was let in: whatever names another queue by now."""
        notes = pod.metadata.annotations
        waiter, run = self._read(pod, queue=notes.get(self._names.charged, "")), notes.get(self._names.group_run, "")
        return msgspec.structs.replace(waiter, run=run) if waiter and waiter.group and run else waiter

    def waiter(self, pod: Pod) -> Waiter | None:
        """The pod as one that waits; None if it asks for nothing that can be read."""
        return self._read(pod)

    def waits_again(self, was: Waiter) -> Waiter | None:
        """One that waits, as it does by this tree."""
        waiter = self._again(was)
        return self._within_limits((waiter,))[0] if waiter else None

    def is_read_otherwise(self, waiter: Waiter) -> bool:
        """Whether one that waits may be kept off other models by now than when it was read."""
        return bool(waiter.off) or self._within_limits((waiter,))[0] is not waiter

    def anew(self, was: Waiter) -> Waiter:
        """One that was let in, as it counts by now, where it was let in; kept off what it was kept off, and no more.

        Whatever its queue may have by now, it may be about to be bound where it was promised room.
        """
        now = self._again(was) or was
        now = msgspec.structs.replace(now, run=was.run)
        for model in was.off:
            now = self.without(now, model) or now
        return now

    def held_to(self, waiter: Waiter, *, node: str, gpus: Iterable[str]) -> Waiter:
        """The same pod, kept off models on which it has no place, as far as its queue counts those.

        Else of cards that come free at once a queue with limits for each model would have half: what is not bound yet
        would count for all of them. Not where kube-scheduler may have to choose another node than was promised.
        """
        if may_go_elsewhere(waiter):
            return waiter
        for model in self._cards.models_without(node, gpus):
            if self._tree.counts(waiter.queue, model):
                waiter = self.without(waiter, model) or waiter
        return waiter

    def without(self, waiter: Waiter, model: str) -> Waiter | None:
        """The same pod, kept off cards of a model; None if no card would do then, were it empty."""
        off = model.casefold()
        if off in waiter.off:
            return None
        shape = kept_off(waiter.shape, model)
        known = self._shapes.of(shape)
        if known.never:
            return None
        return msgspec.structs.replace(
            waiter,
            demand=known.demand,
            shape=shape,
            number=self._shapes.number(shape),
            amounts=known.amounts,
            least=self._shapes.least(shape),
            off=(*waiter.off, off),
        )

    def _read(self, pod: Pod, *, queue: str = "") -> Waiter | None:
        waiter = self._as_written(pod, queue=queue)
        return self._within_limits((waiter,))[0] if waiter else None

    def _again(self, was: Waiter) -> Waiter | None:
        """One that was read already, as it is written: what it asks is still known, unless it was kept off models."""
        if was.off or not self._read_alike:
            return self._as_written(was.pod, queue=was.queue)
        return self._asking(was.shape, pod=was.pod, queue=was.queue, group=was.group)

    def _as_written(self, pod: Pod, *, queue: str) -> Waiter | None:
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError:
            # The webhook refuses it; who came past it waits, and `aliquot explain` says why.
            return None
        if not request.containers:
            return None
        shape = Shape(
            request=of_anybody(request),
            host=host_ask(pod, names=self._names),
            firm=not (request.preemptible or self._tree.queueless),
            words=self._cards.ruled.words(pod),
        )
        return self._asking(shape, pod=pod, queue=queue or request.queue or self._home(pod), group=request.group)

    def _asking(self, shape: Shape, *, pod: Pod, queue: str, group: Group | None) -> Waiter:
        known = self._shapes.of(shape)
        return Waiter(
            pod=pod,
            demand=known.demand,
            shape=shape,
            number=self._shapes.number(shape),
            amounts=known.amounts,
            least=self._shapes.least(shape),
            queue=queue,
            user=self._user(pod),
            priority=pod.spec.priority,
            group=group,
        )

    def _within_limits(self, members: Sequence[Waiter]) -> tuple[Waiter, ...]:
        """As few of them as it takes kept off models of which their queue may never have so much, from the last on."""
        kept = list(members)
        for place in reversed(range(len(kept))):
            for model in self._tree.dimensions.models:
                if self._never_of(model, kept):
                    kept[place] = self.without(kept[place], model) or kept[place]
        return tuple(kept)

    def _where_it_may_be(self, members: Sequence[Waiter]) -> tuple[Waiter, ...]:
        """What a gang needs to start, kept off models where its queue may never have so much, or others keep it.

        Where that would not help they are as they are.
        """
        members = self._within_limits(members)
        while (dim := self._beyond.kept_in(members)) is not None:
            fewer = as_few_kept_off(
                members,
                dim,
                dimensions=self._tree.dimensions,
                without=self.without,
                enough=partial(self._beyond.is_free_for, dim),
            )
            if fewer is None:
                break
            members = fewer
        return members

    def _never_of(self, model: str, members: Sequence[Waiter]) -> bool:
        queue, dimensions, amounts = members[0].queue, self._tree.dimensions, summed(members)
        nodes = [self._tree.nodes[name] for name in self._tree.path(queue)]
        firm = firm_part(members)
        for dim in range(dimensions.cards):
            if dimensions.model_of(dim) == model and amounts[dim]:
                if any(amounts[dim] > node.ceiling[dim] for node in nodes):
                    return True
                if firm and self._beyond.is_never_for_good(queue, firm[dim], dim):
                    return True
        return False

    def charge(self, waiter: Waiter) -> Charge:
        """What the pod is to be charged with: what it was granted, or the most that it may come to."""
        granted = self._cards.granted(waiter.pod)
        amounts = waiter.amounts if granted is None else (*granted, *waiter.shape.host.amounts)
        return Charge(queue=waiter.queue, amounts=amounts, firm=waiter.shape.firm)

    def why_never(self, waiter: Waiter, *, was_in: bool = False) -> str:
        """Why the pod can't be let in, whatever others do; empty if it could. One that was in there may stay there."""
        name = waiter.queue
        if barred := self._why_barred(waiter, home=name if was_in else self._home(waiter.pod)):
            return barred
        if why := self._beyond.why((waiter,), waiter.amounts, "it asks"):
            return why
        return "" if self._tree.nodes[name].spec.autoscale else self._shapes.of(waiter.shape).never

    def is_barred(self, waiter: Waiter) -> bool:
        """Whether it may not wait in its queue, whatever it asks: that is not there, has others below, or is closed."""
        return bool(self._why_barred(waiter, home=self._home(waiter.pod)))

    def why_gang_never(self, members: Sequence[Waiter]) -> str:
        """Why what a gang needs to start can't be let in, whatever others do; empty if it could."""
        queue, members = members[0].queue, self._where_it_may_be(members)
        asks = f"its group starts with {counted(len(members), 'pod')}, which {agreed(len(members), 'asks', 'ask')}"
        if why := self._beyond.why(members, summed(members), asks):
            return why
        return "" if self._tree.nodes[queue].spec.autoscale else self._together.why_never(members)

    def awaits_node(self, members: Sequence[Waiter]) -> bool:
        """Whether no nodes that are there could take these at once beside what others keep, even if they were empty.

        Only where a queue grows: elsewhere such ones are told that they can't be let in, and stand in no line.
        """
        if not self._tree.nodes[members[0].queue].spec.autoscale:
            return False
        members = self._where_it_may_be(members) if len(members) > 1 else members
        return (
            any(self._shapes.of(one.shape).never for one in members)
            or bool(members[0].group and self._together.why_never(members))
            or self._beyond.is_kept_of_all(members)
        )

    def _why_barred(self, waiter: Waiter, *, home: str) -> str:
        """With the queues that its namespace may name; below its own, where there are such."""
        wanted = name, namespace, _ = waiter.queue, waiter.pod.metadata.namespace, home
        if wanted not in self._barred:
            why = why_barred(name, tree=self._tree, namespace=namespace, home=home)
            others = open_to(namespace, tree=self._tree, home=home) if why else []
            below = [one for one in others if name in self._tree.path(one)]
            self._barred[wanted] = f"{why}; {self._instead(namespace, below or others)}" if why else ""
        return self._barred[wanted]

    def _instead(self, namespace: str, queues: Sequence[str]) -> str:
        """Where its pods may wait, and what they say for that."""
        if not queues:
            label = f"an operator can label it with one's name (label {self._names.queue})"
            return f"no queue takes pods of namespace {namespace}: {label}, or add it to spec.namespaces of one"
        return f"pods of namespace {namespace} may name {listed(queues)} (label {self._names.queue})"

    def _home(self, pod: Pod) -> str:
        return self._homes.get(pod.metadata.namespace) or DEFAULT_QUEUE

    def _user(self, pod: Pod) -> str:
        by_label = pod.metadata.labels.get(self._user_label) if self._user_label else None
        return by_label or pod.metadata.namespace
