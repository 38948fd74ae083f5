"""The questions of the centre about room, asked of the picture: where, how good, on which GPUs, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request_notes import Placement
from aliquot_scheduler.fit.appraisal import Appraisal
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.counted import Counted
from aliquot_scheduler.fit.demand import Demand, suits
from aliquot_scheduler.fit.emptied import Emptied
from aliquot_scheduler.fit.finding import NodeCause
from aliquot_scheduler.fit.layout import Plan, lay_out
from aliquot_scheduler.fit.refusals import Refusal, Refusals
from aliquot_scheduler.fit.ruled import Ruled
from aliquot_scheduler.fit.survey import NOTHING_SHORT, Short, Survey
from aliquot_scheduler.fit.surveys import Surveys
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.rules.judging import NO_RULES, Judgement, Rules

NOTHING_SAID: Mapping[str, Judgement] = MappingProxyType({})
Look = Callable[[Pod], Appraisal]


class Finder:
    """Finds room in a picture; what the pod itself holds does not count against it."""

    def __init__(
        self,
        *,
        picture: Picture,
        names: Names,
        look: Look | None = None,
        rules: Rules = NO_RULES,
        named: bool = False,
    ) -> None:
        """`look` says what places are worth to a pod; without it they are chosen by best fit.

        `named`: whoever is told why a node refuses may know of all pods.
        """
        self._ruled = Ruled(picture=picture, rules=rules)
        self._look = look
        self._picture = picture
        self._names = names
        self._surveys = Surveys(grid=picture.grid)
        self._emptied = Emptied()
        self.counted = Counted(picture=picture, names=names, named=named)

    def survey(self, pod: Pod, demand: Demand, *, within: Bools | None = None) -> Survey:
        """Which nodes could take the pod, of those whose rows are `within`; it must hold nothing itself."""
        by_row = {known.row: known for known in self._picture.nodes.values()} if self._tries(demand) else {}
        appraisal, suitable = self._appraisal(pod, demand), self._suitable(demand)
        named = self._picture.named(demand.request.uuids)

        def trial(row: int) -> float | None:
            if named is not None and not named[row].any():
                return None
            plan = self._plan(pod, demand, known=by_row[row], appraisal=appraisal, suitable=suitable)
            return plan.cost if plan else None

        found = self._surveys.of(demand, trial=trial, appraisal=appraisal, within=within)
        return self._ruled.heard(self.counted.heard(found, pod), pod=pod, demand=demand)

    def survey_one(self, pod: Pod, demand: Demand, *, known: KnownNode, within: Bools) -> Survey:
        """Whether that node could take the pod; no other is looked at, and none fits."""
        appraisal, suitable = self._appraisal(pod, demand), self._suitable(demand)

        def trial(_: int) -> float | None:
            plan = self._plan(pod, demand, known=known, appraisal=appraisal, suitable=suitable)
            return plan.cost if plan else None

        found = self._surveys.of_one(known.row, demand, trial=trial, appraisal=appraisal, within=within)
        return self._ruled.heard(self.counted.heard(found, pod), pod=pod, demand=demand)

    def plan(self, pod: Pod, demand: Demand, *, node: str) -> Plan | None:
        """The pod on that node, if pods may be bound there and it fits."""
        known = self._picture.nodes.get(node)
        if known is None or known.out or self.counted.is_short(pod, node=node):
            return None
        appraisal, suitable = self._appraisal(pod, demand), self._suitable(demand)
        return self._plan(pod, demand, known=known, appraisal=appraisal, suitable=suitable)

    def refusals(
        self,
        demand: Demand,
        nodes: Mapping[str, int],
        *,
        judgements: Mapping[str, Judgement] = NOTHING_SAID,
        short: Short = NOTHING_SHORT,
    ) -> dict[str, Refusal]:
        """Why each of these nodes (names with their rows) does not take a pod that asks so.

        `judgements` and `short` are what its survey has said of rules, and of what kube-scheduler counts.
        """
        known = self._picture.nodes
        out = {name: Refusal(cause=NodeCause.OUT, why=known[name].out) for name in nodes if known[name].out}
        for name in nodes.keys() & judgements.keys():
            out.setdefault(name, Refusal(cause=NodeCause.RULE, why=judgements[name].refused))
        left = {name: known[name] for name in nodes if name not in out}
        if not left:
            return out
        named = self._picture.named(demand.request.uuids)
        causes = Causes(demand, grid=self._picture.grid, emptied=self._emptied, named=named)
        of_gpus = Refusals(causes, names=self._names).of(
            {name: one for name, one in left.items() if name not in short.nodes}
        )
        of_count = self.counted.why([name for name in left if name in short.nodes], short)
        counted = {name: Refusal(cause=NodeCause.COUNTED, why=why) for name, why in of_count.items()}
        return out | of_gpus | counted

    def _appraisal(self, pod: Pod, demand: Demand) -> Appraisal | None:
        """Not for a pod that says itself how it wants to lie."""
        return self._look(pod) if self._look and demand.request.placement is Placement.BEST else None

    @staticmethod
    def _tries(demand: Demand) -> bool:
        return demand.pieces is None or bool(demand.request.uuids.allowed or demand.request.uuids.forbidden)

    def _suitable(self, demand: Demand) -> list[bool]:
        """By kind of GPU, whether the pod may have it."""
        return [suits(kind, demand.request) for kind in self._picture.grid.kinds]

    def _plan(
        self, pod: Pod, demand: Demand, *, known: KnownNode, appraisal: Appraisal | None, suitable: Sequence[bool]
    ) -> Plan | None:
        cards = self._cards(demand, known=known, but=pod.metadata.uid, suitable=suitable)
        if appraisal is not None:
            on_gpu = appraisal.on_node(known.row)
            for card in cards:
                card.lost = on_gpu(known.columns[card.gpu.uuid])
        return lay_out(pod, demand, node=known.name, cards=cards)

    def _cards(self, demand: Demand, *, known: KnownNode, but: str, suitable: Sequence[bool]) -> list[Card]:
        """The node's GPUs that the pod allows."""
        grid, cards = self._picture.grid, []
        for gpu, kind in zip(known.inventory.gpus, grid.kind[known.row].tolist(), strict=False):
            if suitable[kind] and gpu.usable and not gpu.mig and demand.request.uuids.admits(gpu.uuid):
                held, holders = self._picture.holdings.total((known.name, gpu.uuid), but=(but,))
                cards.append(Card(gpu=gpu, held=held, holders=holders))
        return cards
