"""What an agent stands on: its node's GPUs, kubelet, processes and files, real or simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aliquot_agent.gpus.driver import GpuDriver
from aliquot_agent.health.health_memory import HealthMemory
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.offering import Offer, only_observed
from aliquot_agent.pods.residents import Residents
from aliquot_agent.pods.spec_collecting import Collectable
from aliquot_agent.starting.kubelet_view import KubeletView
from aliquot_agent.starting.starter import SpecWriter


class SliceSpecs(SpecWriter, Collectable, Protocol):
    """Where CDI specs go, and where they are collected from."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as far as its agent touches it."""

    driver: GpuDriver
    view: KubeletView
    residents: Residents
    specs: SliceSpecs
    # Says what of the driver's files containers would lack; empty if nothing.
    missing_files: Callable[[], str]
    memory: HealthMemory
    # Says in which modes a GPU can hold a slice.
    offer: Offer = only_observed
    # Where GPUs are asked for that MPS shares, if it does.
    mps: MpsFolder | None = None
