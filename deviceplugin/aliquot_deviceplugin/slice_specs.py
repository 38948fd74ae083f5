"""Writes a container's slice where its runtime will find it: grant and driver files in, a CDI spec in the folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.slice_files import ACCOUNT, LIMITS, SliceFiles
from aliquot_agent.pods.standing import Standing, decode_claims, encode_claims
from aliquot_agent.starting.decision import Spec
from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant
from aliquot_core.inventory import Inventory
from aliquot_core.modes import INTERPOSER, MPS
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu, edits_of_grant
from aliquot_deviceplugin.cdi.interposing import DRIVER_INSIDE, interposer_edits
from aliquot_deviceplugin.cdi.mps_edits import mps_edits
from aliquot_deviceplugin.cdi.slice_spec import SliceOwner, slice_spec
from aliquot_deviceplugin.cdi.spec import ContainerEdits
from aliquot_deviceplugin.cdi.store import SpecStore


class SliceSpecs:
    """The CDI specs of this node's slices."""

    def __init__(
        self,
        *,
        names: Names,
        store: SpecStore,
        driver_files: DriverFiles,
        isolation: SliceFiles | None = None,
        mps: MpsFolder | None = None,
    ) -> None:
        """`isolation` is where interposed containers have their limits, on a node that interposes.

        `mps` is where MPS daemons listen, on a node that has them.
        """
        self._isolation = isolation
        self._mps = mps
        self._names = names
        self._store = store
        self._driver_files = driver_files

    def write(self, *, pod: Pod, spec: Spec, claims: Mapping[str, Claim], inventory: Inventory) -> None:
        """Put one container's spec into the folder; the same content is not written twice."""
        gpus = {gpu.uuid: DriverGpu.of(gpu, minor=gpu.minor) for gpu in inventory.gpus}
        token = spec.cdi_name.removeprefix(f"{self._names.cdi_kind}=")
        driver_edits = edits_of_grant(spec.grant, gpus=gpus, driver_files=self._driver_files)
        composed = slice_spec(
            names=self._names,
            token=token,
            owner=SliceOwner(
                pod_uid=pod.metadata.uid,
                namespace=pod.metadata.namespace,
                pod=pod.metadata.name,
                container=spec.container,
            ),
            grant=spec.grant,
            driver_edits=driver_edits,
            isolation_edits=self._isolated(
                spec.grant,
                token=token,
                owner=Owner(pod=pod.metadata.uid, container=spec.container),
                driver=driver_edits.values(),
                inventory=inventory,
            ),
            claims=encode_claims(dict(claims)),
        )
        self._store.write(composed)

    def _isolated(
        self,
        grant: ContainerGrant,
        *,
        token: str,
        owner: Owner,
        driver: Collection[ContainerEdits],
        inventory: Inventory,
    ) -> tuple[ContainerEdits, ...]:
        """What the grant's mode adds; files are written anew at each start, for an account is of one life only."""
        if grant.isolation == MPS and self._mps is not None and not all(part.whole for part in grant.slices):
            return (mps_edits(grant, pipe=str(self._mps.pipe(grant.slices[0].gpu))),)
        if grant.isolation != INTERPOSER or self._isolation is None:
            return ()
        contexts = {part.gpu: inventory.context(part.gpu) for part in grant.slices}
        own = self._isolation.write(token=token, owner=owner, grant=grant, driver=DRIVER_INSIDE, contexts=contexts)
        return (
            interposer_edits(
                driver,
                library=str(self._isolation.library),
                limits=str(own / LIMITS),
                account=str(own / ACCOUNT),
                nvml=str(self._isolation.nvml or ""),
            ),
        )

    def standing(self) -> dict[str, Standing]:
        """What pods held when their containers last started, by UID."""
        return {
            stored.owner.pod_uid: Standing(pod=f"{stored.owner.namespace}/{stored.owner.pod}", claims=claims)
            for stored in self._store.listed()
            if stored.owner and (claims := decode_claims(stored.claims)) is not None
        }

    def collect(self, *, living_pods: Collection[str]) -> int:
        """Remove the specs of pods that are gone; tell how many."""
        collected = len(self._store.collect(living_pods=living_pods))
        if self._isolation is not None:
            self._isolation.collect(tokens={stored.token for stored in self._store.listed()})
        return collected
