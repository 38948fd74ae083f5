"""Where room is kept for those who come in the place of pods that go for nobody who waits, for the next leader.

They go off a degraded GPU, or off what is to stand empty, so there is no pod that waits and could say it
(`room_writer.py`); they themselves are gone when those come. Written before anybody of them is asked to go, and again
when room is kept no more.
"""

from __future__ import annotations

import logging

from aliquot_core.names import MOVED_KEY
from aliquot_kube.errors import ApiError, ForbiddenError, InvalidError, UnreachableError
from aliquot_kube.leadership import NotLeadingError
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.queues.room.recalling import words_of_drained
from aliquot_scheduler.queues.room.refuges import Refuge
from aliquot_scheduler.queues.turns import Queues

log = logging.getLogger(__name__)


class MovedKeeper:
    """Keeps that page of the notebook."""

    def __init__(self, *, turns: Queues, notebook: Notebook) -> None:
        self._turns = turns
        self._notebook = notebook
        # What stands there; None where that is not known.
        self._kept: str | None = None
        # Who stands there, or can't be put down (UIDs).
        self._told: frozenset[str] = frozenset()

    async def recall(self) -> None:
        """Let room be kept on, if that can be read: else what stands there is of long ago, and is written over."""
        self._kept = await self._notebook.read(MOVED_KEY)
        self._turns.register.making_room.drained_before = self._kept or ""

    async def write(self) -> None:
        """Put down what has changed; what can't be put down now keeps nobody else from what is theirs."""
        refuges = self._turns.register.refuges.draining()
        words, whose = words_of_drained(refuges), frozenset(one.uid for one in refuges)
        if words == self._kept:
            self._told = whose
            return
        try:
            await self._notebook.write(MOVED_KEY, words)
        except (ForbiddenError, InvalidError) as error:
            log.warning("room for pods that are moved can't be put down", extra={"error": str(error)})
        except (UnreachableError, NotLeadingError):
            raise
        except ApiError as error:
            log.warning("room for pods that are moved could not be put down yet", extra={"error": str(error)})
            return
        self._kept, self._told = words, whose

    def has_told(self, refuge: Refuge) -> bool:
        """Whether the next leader would know of it, or can't be told."""
        return refuge.uid in self._told
