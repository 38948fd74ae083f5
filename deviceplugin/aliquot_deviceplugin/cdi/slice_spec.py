"""Compose the CDI spec of one container's slice: the driver's files, the limits, what isolation adds.

Pure. The order is what decides when two parts say different things: the driver's edits first, then our environment,
then isolation's edits, which may put a library of ours in the place of the driver's.

The environment that stands in a CDI spec wins over the same variable in the pod (run on a real kubelet), so a
container reads here what it really holds. The variables inform; what enforces must not believe a variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.grant import ContainerGrant
from aliquot_core.impostors import Variable
from aliquot_core.names import Names
from aliquot_deviceplugin.cdi.errors import SliceSpecError, SpecError
from aliquot_deviceplugin.cdi.merging import merge_edits
from aliquot_deviceplugin.cdi.spec import CdiDevice, ContainerEdits, Spec, encode_spec, is_device_name, lowest_version

# Eight GPUs with 120 driver files take 30 kB. Runtimes parse all specs anew at every write, so a spec that is many
# times as large slows down every start on the node.
LARGEST_SPEC = 256 * 1024
LONGEST_TOKEN = 63


class SliceOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The container that a spec is for."""

    pod_uid: str
    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} container {self.container}"


def slice_spec(
    *,
    names: Names,
    token: str,
    owner: SliceOwner,
    grant: ContainerGrant,
    driver_edits: Mapping[str, ContainerEdits],
    isolation_edits: Sequence[ContainerEdits] = (),
    claims: str = "",
) -> Spec:
    """The spec of one container; `driver_edits` by the GPU's uuid, `claims` as the agent will want to read them."""
    if not is_device_name(token) or len(token) > LONGEST_TOKEN:
        raise SliceSpecError(f"{token[:80]!r} is no CDI device name", where=str(owner))
    if missing := [part.gpu for part in grant.slices if part.gpu not in driver_edits]:
        raise SliceSpecError(f"nothing is known of GPU {missing[0]}", where=str(owner))
    of_driver = [driver_edits[part.gpu] for part in grant.slices]
    edits = merge_edits([*of_driver, ContainerEdits(env=slice_environment(grant)), *isolation_edits])
    spec = Spec(
        cdi_version="",
        kind=names.cdi_kind,
        annotations=owner_annotations(owner, names=names) | ({names.of("claims"): claims} if claims else {}),
        devices=(CdiDevice(name=token, container_edits=edits),),
    )
    spec = msgspec.structs.replace(spec, cdi_version=lowest_version(spec))
    if (size := len(encode_spec(spec))) > LARGEST_SPEC:
        raise SpecError(
            f"its CDI spec would take {size} bytes, more than {LARGEST_SPEC}",
            where=str(owner),
            remedy="look for thousands of mounts in the node's NVIDIA CDI spec",
        )
    return spec


def slice_environment(grant: ContainerGrant) -> tuple[str, ...]:
    """What the container can read of its slice."""
    gpus = ",".join(part.gpu for part in grant.slices)
    parts = ",".join(f"{part.gpu}:{part.compute.value}:{part.memory.value}" for part in grant.slices)
    values = {
        # The NVIDIA runtime, where it is the default one, must not add GPUs of its own to what is granted: CUDA
        # images ask it for all of them.
        Variable.NVIDIA_VISIBLE_DEVICES: "void",
        # PCI order is what nvidia-smi and the inventory count by; CUDA's own default puts the fastest first.
        Variable.CUDA_DEVICE_ORDER: "PCI_BUS_ID",
        Variable.CUDA_VISIBLE_DEVICES: gpus,
        Variable.GPUS: gpus,
        Variable.COMPUTE: str(grant.compute.value),
        Variable.COMPUTE_LIMIT: str(grant.limit.value),
        Variable.MEMORY: str(grant.memory.value),
        Variable.SLICES: parts,
        Variable.ISOLATION: grant.isolation,
    }
    return tuple(f"{name.value}={value}" for name, value in values.items())


def owner_annotations(owner: SliceOwner, *, names: Names) -> dict[str, str]:
    """Whose spec it is, for garbage collection and for people who read the file."""
    return {
        names.of("pod-uid"): owner.pod_uid,
        names.of("namespace"): owner.namespace,
        names.of("pod"): owner.pod,
        names.of("container"): owner.container,
    }


def owner_of(spec: Spec, *, names: Names) -> SliceOwner | None:
    """The container that a spec of ours names, if it names one."""
    uid, namespace, pod, container = (
        spec.annotations.get(names.of(key), "") for key in ("pod-uid", "namespace", "pod", "container")
    )
    if not (uid and namespace and pod and container):
        return None
    return SliceOwner(pod_uid=uid, namespace=namespace, pod=pod, container=container)
