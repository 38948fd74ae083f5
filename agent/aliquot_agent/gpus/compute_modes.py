"""Which processes a GPU takes, read and set through NVML by uuid; to set it takes root's right to administer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from aliquot_agent.gpus.nvml_binding import Binding

# NVML has one state for the process, and GPUs are looked at by several threads.
_one_at_a_time = threading.Lock()


class NvmlComputeModes:
    """The compute modes of this node's GPUs.

    NVML is opened for each question, at most every other second: a driver that was replaced is then met as it is.
    """

    def __init__(self) -> None:
        self._binding = Binding()

    def closed(self, gpu: str) -> bool:
        """Whether it takes one process only; raises a `GpuDriverError`."""
        with self._handle(gpu) as handle:
            mode = self._binding.must("nvmlDeviceGetComputeMode", handle, where=gpu)
        return bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    def close(self, gpu: str, *, closed: bool) -> None:
        """Take one process only from now on, or any number; raises a `GpuDriverError`."""
        mode = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if closed else pynvml.NVML_COMPUTEMODE_DEFAULT
        with self._handle(gpu) as handle:
            self._binding.must("nvmlDeviceSetComputeMode", handle, mode, where=gpu)

    @contextmanager
    def _handle(self, gpu: str) -> Iterator[Any]:
        with _one_at_a_time:
            self._binding.system("nvmlInit")
            try:
                yield self._binding.must("nvmlDeviceGetHandleByUUID", gpu, where=gpu)
            finally:
                self._binding.system("nvmlShutdown")
