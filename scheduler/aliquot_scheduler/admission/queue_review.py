"""AdmissionReview of a Queue: somebody creates, changes or deletes one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from aliquot_core.objects import Queue
from aliquot_scheduler.admission.review import Asked, Envelope, Wire, decoded, without_nulls


class _Kind(Wire, frozen=True, kw_only=True):
    kind: Literal["Queue"]


class _Request(Asked, frozen=True, kw_only=True):
    kind: _Kind
    operation: Literal["CREATE", "UPDATE", "DELETE"]
    name: str = ""


class QueueReview(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a queue: `new` is None where it is deleted, `old` where it is created."""

    uid: str
    user: str
    name: str
    new: Queue | None
    old: Queue | None

    @property
    def spec(self) -> dict[str, Any]:
        """As it is to be."""
        return self.new.spec if self.new else {}


_reviews = msgspec.json.Decoder(Envelope[_Request])
_queues = msgspec.json.Decoder(Queue)


def decode_queue_review(body: bytes) -> QueueReview:
    """Read what the API server asks."""
    return without_nulls(_review_of, body)


def _review_of(body: bytes) -> QueueReview:
    request = decoded(_reviews, body, what="body").request
    created, deleted = request.operation == "CREATE", request.operation == "DELETE"
    new = None if deleted else decoded(_queues, request.object, what="object")
    old = None if created else decoded(_queues, request.old_object, what="oldObject")
    known = (new or old or Queue()).metadata.name
    return QueueReview(uid=request.uid, user=request.user_info.username, name=request.name or known, new=new, old=old)
