"""What an operator can set of the webhook."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.settings import UnusableValueError

# Pods that name it are given to our profile, as those that name none.
DEFAULT_SCHEDULER = "default-scheduler"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# As kube-scheduler's profiles are called.
Scheduler = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=253,
        pattern=rf"^{_LABEL}(\.{_LABEL})*$",
        extra_json_schema={"not": {"const": DEFAULT_SCHEDULER}},
    ),
]
# A CUDA context alone takes so much of a GPU, before the program has asked for anything.
CONTEXT_MEMORY = 300


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `admission` of the settings."""

    # The kube-scheduler profile that asks our extender: pods of the default scheduler are given to it.
    scheduler_name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] = "aliquot"
    # Others that ask it, by their spec.schedulerName: pods may name these too, and no others.
    other_schedulers: tuple[Scheduler, ...] = ()
    # The profile that was installed with Aliquot, empty where the cluster's own kube-scheduler has it: the same name.
    profile: Annotated[str, msgspec.Meta(max_length=253)] = "aliquot"
    # MiB that a slice must have on each of its GPUs, where no node says what a CUDA context takes there; what nodes say
    # goes before it. 0 takes whatever is asked.
    least_memory: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = CONTEXT_MEMORY

    def __post_init__(self) -> None:
        """Refuse to name as another one whoever is none."""
        if DEFAULT_SCHEDULER in self.other_schedulers:
            raise UnusableValueError(
                f"other_schedulers names {DEFAULT_SCHEDULER}, whose pods are given to {self.scheduler_name}",
                remedy="drop it, or give the profile that asks Aliquot's extender a name of its own",
            )
        if self.scheduler_name in self.other_schedulers:
            raise UnusableValueError(
                f"other_schedulers names {self.scheduler_name}, which is scheduler_name already",
                remedy="drop it: pods may name that one in any case",
            )
