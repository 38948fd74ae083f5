"""The webhook without its socket: the API server's question in, the answer out, as bytes.

Pods are judged by the queues that this replica follows; who would be refused for its queue, and whoever changes a
queue, by what the API server says at this instant: parents are often made a moment before their children.

Both endpoints refuse what is wrong. Kubernetes checks a pod between the two, and of a fraction or a negative number it
says only that it is invalid; the mutating endpoint is asked before that, and says what to write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.request import NO_USE, asks
from aliquot_kube.errors import ApiError
from aliquot_scheduler.admission.landscape import Plans
from aliquot_scheduler.admission.mutation import mutate, pinned, taken_off
from aliquot_scheduler.admission.places import judge_place
from aliquot_scheduler.admission.queue_review import decode_queue_review
from aliquot_scheduler.admission.queues import HardwareOf, judge_queue, nothing_known
from aliquot_scheduler.admission.review import Review, decode_review, encode_allowed, encode_refused, first_of, in_log
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge, judge_bound, judge_change, judge_entry
from aliquot_scheduler.admission.verdict import Verdict
from aliquot_scheduler.picture.there import There

log = logging.getLogger(__name__)

# Kubelets; NodeRestriction lets them create nothing but the mirrors of their static pods.
NODES = "system:nodes"


class Admission:
    """Answers the API server about pods and queues."""

    def __init__(
        self,
        *,
        names: Names,
        settings: AdmissionSettings,
        there: Callable[[], There] = There,
        plans: Plans | None = None,
        hardware: HardwareOf = nothing_known,
    ) -> None:
        """`there` tells which GPUs and nodes there are, `hardware` how much, as far as known; `plans` the queues."""
        self._names = names
        self._settings = settings
        self._there = there
        self._plans = plans
        self._hardware = hardware

    def mutating(self, body: bytes) -> bytes:
        """Fill in what the author of a new pod left out."""
        review = decode_review(body)
        # A mirror stands for what runs already: changed, it would only stop telling so.
        if review.old is not None or NODES in review.groups:
            return encode_allowed(review.uid)
        problems = self._judged(review).problems
        if problems:
            return _refused(review, problems)
        patch = mutate(review.pod, review.document, names=self._names, scheduler_name=self._settings.scheduler_name)
        told = [*taken_off(review.pod, names=self._names), *pinned(review.pod, names=self._names)]
        return encode_allowed(review.uid, patch=patch, warnings=told)

    async def validating(self, body: bytes) -> bytes:
        """Refuse what can't be meant, and changes that come too late."""
        review = decode_review(body)
        if NODES in review.groups:
            return encode_allowed(review.uid)
        verdict = self._judged(review)
        place = await self._judged_place(review)
        problems = [*verdict.problems, *self._out_of_place(review), *place.problems]
        warnings = [*verdict.warnings, *place.warnings]
        if problems:
            return _refused(review, problems, warnings=warnings)
        return encode_allowed(review.uid, warnings=warnings)

    async def validating_queue(self, body: bytes) -> bytes:
        """Refuse a change of a queue that the whole tree can't bear."""
        review = decode_queue_review(body)
        if self._plans is None:
            return encode_allowed(review.uid)
        verdict = judge_queue(review, plan=await self._plans.asked(), hardware=self._hardware)
        if not verdict.problems:
            return encode_allowed(review.uid, warnings=verdict.warnings)
        said = [str(problem) for problem in verdict.problems]
        about = {"queue": in_log(review.name), "user": in_log(review.user)}
        log.info("queue refused", extra={**about, "problems": [in_log(one) for one in first_of(said)]})
        return encode_refused(review.uid, problems=said, warnings=verdict.warnings)

    async def _judged_place(self, review: Review) -> Verdict:
        """Where it waits is judged when it comes, and when it is to wait elsewhere."""
        queue = review.pod.metadata.labels.get(self._names.queue)
        moves = review.old is None or queue != review.old.metadata.labels.get(self._names.queue)
        if self._plans is None or not moves or review.pod.spec.node_name:
            return Verdict()
        judge = partial(judge_place, review.pod, namespace=review.namespace, names=self._names)
        plan = self._plans.known()
        verdict = judge(plan=plan) if plan else None
        if verdict and not verdict.problems:
            return verdict
        try:
            return judge(plan=await self._plans.asked(review.namespace))
        except ApiError as error:
            # The centre judges it once more before it lets it in.
            log.warning("queues can't be asked for", extra={"error": str(error)})
            return verdict or Verdict()

    def _judged(self, review: Review) -> Verdict:
        if review.old is not None and review.old.spec.node_name:
            return judge_bound(
                review.pod, old=review.old, names=self._names, settings=self._settings, there=self._there()
            )
        return judge(review.pod, names=self._names, settings=self._settings, there=self._there())

    def _out_of_place(self, review: Review) -> list[AliquotError]:
        if review.old is not None:
            return list(judge_change(review.pod, old=review.old, names=self._names))
        declines = review.pod.metadata.labels.get(self._names.use) == NO_USE
        if declines or not asks(review.pod, names=self._names):
            return []
        return list(judge_entry(review.pod, names=self._names, settings=self._settings))


def _refused(review: Review, problems: Sequence[AliquotError], *, warnings: Sequence[str] = ()) -> bytes:
    said = [str(problem) for problem in problems]
    name = review.pod.metadata.name or f"{review.document.get('metadata', {}).get('generateName', '')}*"
    where = f"{review.namespace}/{name}"
    about = {"pod": in_log(where), "user": in_log(review.user)}
    log.info("pod refused", extra={**about, "problems": [in_log(one) for one in first_of(said)]})
    return encode_refused(review.uid, problems=said, warnings=warnings)
