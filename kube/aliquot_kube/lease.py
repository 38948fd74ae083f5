"""A lease kept alive, as a sign of life that carries a word.

Theory of operation. A `LeaseKeeper` holds the last lease it saw and turns the next beat into one write: create where
there is none, else a merge patch that names the version it saw. The API server refuses that patch if anybody wrote in
between (409), so two writers can never both believe that the lease is theirs; the one refused reads again and decides
again. Wall time is only ever written, for people and for `kubectl`; all intervals and ages are of the monotonic clock,
for a clock that is set must not make a living node look dead (the official elector compares wall times).
Leader election stands on the same writes, with a rule for when one may take over (`election`): it
judges each version itself, so it takes `put`, which never writes over what was not looked at.

What must always hold:
 1. A lease is written only over the very version that was read.
 2. After a failure whose outcome is unknown the lease is read before it is written again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from aliquot_core.instants import micro_time
from aliquot_core.objects import Lease, LeaseSpec, ObjectMeta
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError
from aliquot_kube.patches import Patch, merge_patch
from aliquot_kube.resources import LEASES

# A beat that lost a race reads and writes again at once; losing this often in a row means a rival, not bad luck.
_TRIES = 4


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a write says: who is there, for how long, since when, and what else."""

    holder: str
    duration: float
    wall: float
    annotations: Mapping[str, str] = {}

    def spec(self, *, last: LeaseSpec | None) -> LeaseSpec:
        """The lease's content after this write."""
        now = micro_time(self.wall)
        mine = last is not None and last.holder_identity == self.holder
        transitions = (last.lease_transitions or 0) if last else 0
        return LeaseSpec(
            holder_identity=self.holder,
            lease_duration_seconds=max(1, math.ceil(self.duration)),
            acquire_time=last.acquire_time if mine and last else now,
            renew_time=now,
            lease_transitions=transitions if mine or last is None else transitions + 1,
        )

    def patch(self, *, over: Lease) -> Patch:
        """The write over a lease that was read, and only over that."""
        return merge_patch(
            {
                "metadata": {
                    "resourceVersion": over.metadata.resource_version,
                    "annotations": dict(self.annotations),
                },
                "spec": msgspec.to_builtins(self.spec(last=over.spec)),
            }
        )


class LeaseKeeper:
    """One lease and the version of it that we know."""

    def __init__(self, *, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._metadata = ObjectMeta(namespace=namespace, name=name)
        self.lease: Lease | None = None
        # Whom the last write put out of the lease.
        self.taken_from: str | None = None

    async def write(self, claim: Claim) -> Lease:
        """Make the claim stand in the API server, reading anew as often as others write in between."""
        for _ in range(_TRIES):
            try:
                self.lease = await self._write_once(claim)
            except (ConflictError, NotFoundError):
                self.lease = None
            except ApiError:
                # It may have been written all the same.
                self.lease = None
                raise
            else:
                return self.lease
        raise ConflictError(
            f"lost {_TRIES} races in a row for the lease", where=self._metadata.name, remedy="who else renews it?"
        )

    async def read(self) -> Lease | None:
        """Read the lease, if there is one."""
        try:
            self.lease = await self._client.get(LEASES, name=self._metadata.name, namespace=self._metadata.namespace)
        except NotFoundError:
            self.lease = None
        return self.lease

    async def make(self) -> Lease:
        """Make a lease that nobody holds."""
        return await self._client.create(LEASES, Lease(metadata=self._metadata))

    async def put(self, claim: Claim, *, over: Lease) -> Lease:
        """Write once, over this very version; anything else that is there is left alone and raises."""
        return await self._patch(claim.patch(over=over))

    async def release(self, *, over: Lease) -> Lease:
        """Let nobody hold this very version; whoever wants it need not wait."""
        metadata = {"resourceVersion": over.metadata.resource_version}
        # An empty holder would be refused: kube-apiserver wants a name or none.
        return await self._patch(merge_patch({"metadata": metadata, "spec": {"holderIdentity": None}}))

    async def _write_once(self, claim: Claim) -> Lease:
        over = self.lease or await self.read()
        holder = over.spec.holder_identity if over else None
        self.taken_from = holder if holder != claim.holder else None
        if over is None:
            metadata = msgspec.structs.replace(self._metadata, annotations=dict(claim.annotations))
            return await self._client.create(LEASES, Lease(metadata=metadata, spec=claim.spec(last=None)))
        return await self.put(claim, over=over)

    async def _patch(self, patch: Patch) -> Lease:
        name, namespace = self._metadata.name, self._metadata.namespace
        return await self._client.patch(LEASES, name=name, namespace=namespace, patch=patch)
