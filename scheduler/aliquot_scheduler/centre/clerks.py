"""Those who write and work beside the decisions, each by itself: no pod waits for them to be placed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from aliquot_core.objects import Pod
from aliquot_kube.changes import Change
from aliquot_scheduler.centre.beside import Beside
from aliquot_scheduler.centre.by_priority import EvictionsByPriority
from aliquot_scheduler.centre.causes import Cause
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.evictor import Evictor
from aliquot_scheduler.centre.gang_returner import GangReturner
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.mix_keeper import MixKeeper
from aliquot_scheduler.centre.moved_keeper import MovedKeeper
from aliquot_scheduler.centre.node_teller import NodeTeller
from aliquot_scheduler.centre.nominated_in_vain import NominatedInVain
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.centre.notice_writer import NoticeWriter
from aliquot_scheduler.centre.over_use import OverUseEvictor
from aliquot_scheduler.centre.over_use_words import OverUseWords
from aliquot_scheduler.centre.queue_writer import QueueWriter
from aliquot_scheduler.centre.room_writer import RoomWriter
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.centre.table_renewer import Aside, TableRenewer
from aliquot_scheduler.centre.torn_keeper import TornKeeper
from aliquot_scheduler.centre.view_writer import ViewWriter
from aliquot_scheduler.centre.watches import Watches
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.reclaim import Reclaim


class Clerks:
    """All of them, for one term of leading."""

    def __init__(
        self,
        *,
        turns: Queues,
        picture: Picture,
        appraiser: Appraiser,
        watches: Watches,
        means: Means,
        settings: CentreSettings,
        moves_per_hour: int,
        aside: Aside,
        led_until: float | None,
    ) -> None:
        self._events = means.events
        self.beside = Beside(means=means)
        self.queue_writer = QueueWriter(
            turns=turns, means=means, there=lambda: watches.queues.objects, not_before=lambda: appraiser.book.until
        )
        self.views = ViewWriter(
            turns=turns,
            means=means,
            namespaces=lambda: watches.namespaces.objects,
        )
        self.notices = NoticeWriter(turns=turns, means=means)
        evictions, notebook = Evictions(means=means), Notebook(means=means)
        self.moved = MovedKeeper(turns=turns, notebook=notebook)
        self.torn = TornKeeper(turns=turns, notebook=notebook)
        reclaim = Reclaim(queues=turns, picture=picture)
        moving = Consolidation(queues=turns, picture=picture, reclaim=reclaim, per_hour=moves_per_hour)
        self.rooms = RoomWriter(turns=turns, means=means)
        self.evictor = Evictor(
            reclaim=reclaim,
            consolidation=moving,
            turns=turns,
            means=means,
            evictions=evictions,
            rooms=self.rooms,
            moved=self.moved,
            torn=self.torn,
        )
        self.over_use_words = OverUseWords(turns=turns, means=means)
        self.over_use = OverUseEvictor(
            means=means, grace=settings.over_use_grace, evictions=evictions, word=self.over_use_words.word
        )
        self.by_priority = EvictionsByPriority(means=means, led_until=led_until)
        in_vain = NominatedInVain(means=means, pods=lambda: watches.pods.objects, labels_of=watches.labels_of)
        # Else whom kube-scheduler chooses goes.
        self.in_vain = in_vain if settings.evictions_denied else None
        self.nodes = NodeTeller(picture=picture, means=means)
        self.gangs = GangReturner(turns=turns, means=means, evictions=evictions)
        self.mix = MixKeeper(appraiser=appraiser, notebook=notebook, clock=means.clock)
        self.tables = TableRenewer(appraiser=appraiser, clock=means.clock, aside=aside)

    def evicted(self) -> dict[str, int]:
        """How many were sent away in this term of leading, by what for."""
        return {
            Cause.OTHERS: self.evictor.evicted,
            Cause.BUDGET: self.evictor.against_budgets,
            Cause.MOVED: self.evictor.moved,
            Cause.OVER_USE: self.over_use.evicted,
            Cause.BROKEN: self.gangs.evicted,
            Cause.PRIORITY: self.by_priority.count,
        }

    async def recall(self) -> None:
        """What the leader before us has put down, as far as that can be read."""
        await asyncio.gather(self.mix.recall(), self.moved.recall(), self.torn.recall())

    def pod_changes(self) -> list[Callable[[Change[Pod]], None]]:
        """Who takes in what the watch tells of pods; what one of them can't, it costs nobody else."""
        takers = (
            self.over_use.pod_changed,
            self.over_use_words.pod_changed,
            self.notices.pod_changed,
            self.by_priority.pod_changed,
            *([self.in_vain.pod_changed] if self.in_vain else []),
            self.rooms.pod_changed,
        )
        return [self.beside.taking_in(take) for take in takers]

    def by_label(self) -> list[Callable[[Change[Pod]], None]]:
        """Who of them goes by whether an operator says that a pod's namespace runs the cluster; guarded as above."""
        return [self.beside.taking_in(self.in_vain.pod_changed)] if self.in_vain else []

    def works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What each of them does, until cancelled."""
        return {
            "statuses of queues": self.queue_writer.run,
            "views of queues": self.views.run,
            "why pods wait": self.notices.run,
            "making room": self.evictor.run,
            "evicting for over-use": self.over_use.run,
            "how far over-use goes": self.over_use_words.run,
            "sending groups back": self.gangs.run,
            "telling of nodes": self.nodes.run,
            **({"telling who is nominated in vain": self.in_vain.run} if self.in_vain else {}),
            "events": partial(self._events.run, failed=self.beside.not_written),
            "keeping the mix": self.mix.run,
            "renewing tables": self.tables.run,
        }

    def runs(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """All of it; none ends the leader by a defect."""
        return [self.beside.going_on(work, run) for work, run in self.works().items()]
