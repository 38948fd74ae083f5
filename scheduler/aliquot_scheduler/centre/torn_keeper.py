"""Which groups go for others, for the next leader: of one of which some are gone nothing else says why.

Put down before anybody of such a group is asked, and again when no leader need know of it any more
(`queues/room/torn_groups.py`). Owners get back what is theirs though it can't be put down: what fails a few times is
taken to fail for good, and tried on meanwhile.
"""

from __future__ import annotations

import logging

from aliquot_core.names import TORN_KEY
from aliquot_kube.errors import ApiError, ForbiddenError, InvalidError
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.centre.tries import Tries
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.torn_groups import Going, going_for, going_said, words_of_going
from aliquot_scheduler.queues.turns import Queues

log = logging.getLogger(__name__)


class TornKeeper:
    """Keeps that page of the notebook."""

    def __init__(self, *, turns: Queues, notebook: Notebook) -> None:
        self._turns = turns
        self._notebook = notebook
        # What stands there; None where that is not known.
        self._kept: str | None = ""
        # Who stands there, or can't be put down.
        self._told = frozenset[Going]()
        self._tries = Tries()

    async def recall(self) -> None:
        """Let it be known which groups went, if that can be read: else what stands there is written over."""
        self._kept = await self._notebook.read(TORN_KEY)
        self._turns.register.making_room.torn_groups.put_down(going_said(self._kept or ""))

    async def write(self) -> None:
        """Put down what has changed; what can't be put down now keeps nobody else from what is theirs."""
        register = self._turns.register
        going = register.making_room.still_going(is_short=register.stale.is_short)
        words, all_of_them = words_of_going(going), frozenset(going)
        if words == self._kept or await self._is_written(words):
            self._kept, self._told, self._tries = words, all_of_them, Tries()
        elif all_of_them - self._told and self._tries.fails_for_good(TORN_KEY, among=(TORN_KEY,)):
            self._told = all_of_them

    async def _is_written(self, words: str) -> bool:
        """Whether it stands there by now, or never will."""
        try:
            await self._notebook.write(TORN_KEY, words)
        except (ForbiddenError, InvalidError) as error:
            log.warning("groups that go can't be put down", extra={"error": str(error)})
        except ApiError as error:
            log.warning("groups that go could not be put down yet", extra={"error": str(error)})
            return False
        return True

    def has_told(self, clearing: Clearing) -> bool:
        """Whether the next leader would know of all groups that go for it, or can't be told."""
        return all(going in self._told for going in going_for(clearing))
