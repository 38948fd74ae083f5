"""Defects planted on purpose, one at a time: a simulation that does not find them would not find real ones either."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from aliquot_agent.pods import slice_holders
from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.pods.slice_holders import SliceHolders
from aliquot_agent.pods.standing import Standing
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.starting import room, starts
from aliquot_agent.starting.decision import Decision, Known, Start
from aliquot_core import claims
from aliquot_core.claims import Claim
from aliquot_core.grant import Grant
from aliquot_core.inventory import Gpu
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB
from aliquot_core.request import PodRequest, parse_request
from aliquot_deviceplugin.cdi.store import SpecStore, StoredSpec
from aliquot_deviceplugin.slice_specs import SliceSpecs
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.reflector import OpenWatch, Reflector

Plant = Callable[[pytest.MonkeyPatch], None]
Claims = Iterator[tuple[str, dict[str, Claim]]]


def forget_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Pods deleted by force hold nothing, though their processes live."""
    real = SliceHolders.current

    def current(self: SliceHolders) -> Mapping[str, Standing]:
        return {uid: held for uid, held in real(self).items() if uid in self._pods.by_uid}

    patch.setattr(SliceHolders, "current", current)


def expect_nobody(patch: pytest.MonkeyPatch) -> None:
    """A pod that is gone and has no process holds nothing, though its container may just be made."""
    patch.setattr(slice_holders, "COMING", 0.0)


def forget_at_restart(patch: pytest.MonkeyPatch) -> None:
    """A new agent does not read what the one before it had given."""
    patch.setattr(SliceSpecs, "standing", lambda _: {})


def skip_the_room_check(patch: pytest.MonkeyPatch) -> None:
    """Grants are believed, whoever else is there."""
    patch.setattr(starts, "over", lambda *_, **__: "")


def take_deletion_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """A pod that is to go is counted as gone."""
    real = room.in_force

    def in_force(known: Known, *, but: str = "") -> Claims:
        leaving = {uid for uid, pod in known.pods.items() if pod.metadata.deletion_timestamp}
        return ((uid, held) for uid, held in real(known, but=but) if uid not in leaving)

    patch.setattr(room, "in_force", in_force)


def decide_half_blind(patch: pytest.MonkeyPatch) -> None:
    """The first list need not be whole, and earlier slices not be read: nobody else is here as far as we know."""
    real = BoundPods.__init__

    def at_once(self: BoundPods, **parts: Any) -> None:
        real(self, **parts)
        self.complete = True

    patch.setattr(BoundPods, "__init__", at_once)
    patch.setattr(SliceSpecs, "standing", lambda _: {})


def swap_slices_of_init_and_app(patch: pytest.MonkeyPatch) -> None:
    """The first container's slice is written under the names of all that share its ids."""
    real = starts._judge

    def judge(pod: Pod, held: Any, *, known: Known) -> Decision:
        decision = real(pod, held, known=known)
        if not isinstance(decision, Start):
            return decision
        first = decision.specs[0].grant
        specs = tuple(msgspec.structs.replace(spec, grant=first) for spec in decision.specs)
        return msgspec.structs.replace(decision, specs=specs)

    patch.setattr(starts, "_judge", judge)


def collect_from_the_living(patch: pytest.MonkeyPatch) -> None:
    """Specs are collected as if nobody lived."""
    real = SpecStore.collect

    def collect(self: SpecStore, *, living_pods: Collection[str]) -> list[StoredSpec]:  # noqa: ARG001 - the defect
        return real(self, living_pods=set())

    patch.setattr(SpecStore, "collect", collect)


def collect_nothing(patch: pytest.MonkeyPatch) -> None:
    """Specs stay for ever."""
    patch.setattr(SpecStore, "collect", lambda *_, **__: [])


def resume_from_a_later_version(patch: pytest.MonkeyPatch) -> None:
    """A watch that broke goes on a few versions after the last one seen."""
    real = Reflector._next_watch

    def next_watch(self: Reflector[Any]) -> OpenWatch:
        wanted = real(self)
        if self._failures == 0:
            return wanted
        return msgspec.structs.replace(wanted, resource_version=str(int(wanted.resource_version) + 4))

    patch.setattr(Reflector, "_next_watch", next_watch)


def believe_every_grant(patch: pytest.MonkeyPatch) -> None:
    """Whose grant it is and what was asked is not compared."""

    def check(grant: Grant, *, pod: Pod, names: Names) -> PodRequest:  # noqa: ARG001 - the defect
        return parse_request(pod, names=names)

    patch.setattr(claims, "check_grant", check)


def trust_sick_gpus(patch: pytest.MonkeyPatch) -> None:
    """A GPU that fell off the bus is given as if it were there, with all of its memory."""
    patch.setattr(starts, "misfit", lambda *_, **__: "")
    patch.setattr(Gpu, "usable", property(lambda gpu: MiB(gpu.memory)))


def follow_the_annotation(patch: pytest.MonkeyPatch) -> None:
    """A running pod counts by the grant that stands there now."""
    real = room.in_force

    def in_force(known: Known, *, but: str = "") -> Claims:
        here = {uid: standing for uid, standing in known.standing.items() if uid not in known.pods}
        return real(msgspec.structs.replace(known, standing=here), but=but)

    patch.setattr(room, "in_force", in_force)
    patch.setattr(starts, "_altered", lambda *_, **__: "")


def publish_once(patch: pytest.MonkeyPatch) -> None:
    """The node's object is written at the start, and not put right again."""
    real = NodePublisher._reconcile

    async def reconcile(self: NodePublisher) -> None:
        if not getattr(self, "_done", False):
            await real(self)
            self._done = self._seen() is not None and bool(self._inventory().gpus)  # type: ignore[attr-defined]  # ours

    patch.setattr(NodePublisher, "_reconcile", reconcile)


def beat_into_the_void(patch: pytest.MonkeyPatch) -> None:
    """After a beat that failed the lease is left alone."""
    real = HeartBeat._beat

    async def beat(self: HeartBeat) -> float:
        return 3600.0 if self._failures else await real(self)

    patch.setattr(HeartBeat, "_beat", beat)


PLANTED: Mapping[str, Plant] = {
    plant.__name__: plant
    for plant in (
        forget_who_is_gone,
        forget_at_restart,
        skip_the_room_check,
        take_deletion_for_the_end,
        decide_half_blind,
        swap_slices_of_init_and_app,
        collect_from_the_living,
        collect_nothing,
        resume_from_a_later_version,
        believe_every_grant,
        trust_sick_gpus,
        follow_the_annotation,
        publish_once,
        beat_into_the_void,
    )
}
