"""The edits that let a container use its GPU through the node's MPS daemon, with its own limits. Pure.

MPS takes its limits from the client's environment, and obeys the lower one of that and the daemon's. The container's
/dev/shm is not touched: since Volta, clients and server need none in common (docs/isolation.md), and one for all
containers of a GPU would show each what the others share among themselves.
"""

from __future__ import annotations

from aliquot_core.grant import ContainerGrant
from aliquot_deviceplugin.cdi.spec import ContainerEdits, Mount

INSIDE = "/run/aliquot/mps"
_OPTIONS = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")


def mps_edits(grant: ContainerGrant, *, pipe: str) -> ContainerEdits:
    """What a container needs that holds part of one GPU; `pipe` is where that GPU's daemon listens on the host."""
    (part,) = grant.slices
    return ContainerEdits(
        env=(
            f"CUDA_MPS_PIPE_DIRECTORY={INSIDE}",
            # How wide it may run. What is guaranteed to others MPS can't say: a burst is theirs to lose too.
            f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={part.limit.value}",
            # The daemon has one GPU, which is its device 0. The limit is each process's by itself.
            f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={part.memory.value}M",
        ),
        mounts=(Mount(host_path=pipe, container_path=INSIDE, options=_OPTIONS),),
    )
