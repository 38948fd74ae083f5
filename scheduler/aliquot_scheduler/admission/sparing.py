"""Keeps pods with slices from a kube-scheduler that evicts by priority and can't be told to ask before.

The API server asks what it writes on its victims: first that they are to go, then their deletion. It is answered that
there is no such pod. That kube-scheduler takes for one that is gone already, and looks again when something changes or
after five minutes; of any other refusal it tries again at once, 30 times a second for each pod that waits (measured,
1.36.3), and of 50 writes a second that it has nobody else would be bound.
"""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_scheduler.admission.review import (
    Asked,
    Envelope,
    decoded,
    encode_allowed,
    encode_not_there,
    in_log,
    without_nulls,
)

log = logging.getLogger(__name__)

NOBODY_GOES = "pods with slices go for others by their queues only, whatever the PriorityClass"


class _Request(Asked, frozen=True, kw_only=True):
    operation: Literal["UPDATE", "DELETE"]


_reviews = msgspec.json.Decoder(Envelope[_Request])
_pods = msgspec.json.Decoder(Pod)


def spare(body: bytes, *, names: Names) -> bytes:
    """Whether a kube-scheduler may send this pod away; which of its writes say so the configuration knows."""
    return without_nulls(lambda whole: _spared(whole, names=names), body)


def _spared(body: bytes, *, names: Names) -> bytes:
    review = decoded(_reviews, body, what="body").request
    pod = decoded(_pods, review.old_object, what="oldObject")
    if not asks(pod, names=names):
        return encode_allowed(review.uid)
    about = {"pod": pod.key, "node": pod.spec.node_name, "user": review.user_info.username}
    log.info("kept from eviction by priority", extra={what: in_log(name) for what, name in about.items()})
    return encode_not_there(review.uid, why=NOBODY_GOES)
