"""The real NVML driver on the fake library, as the contract suite wants it."""

from __future__ import annotations

from pynvml import NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH

from aliquot_agent.gpus.model import ProcessKind
from aliquot_agent.gpus.nvml import Patience
from support.fake_nvml import FakeNvml
from support.gpu_contract import DEADLINE_S

QUICK = Patience(open_s=5.0, call_s=DEADLINE_S, close_s=2.0, slice_s=0.05, reopen_first_s=0.0, reopen_last_s=0.0)


class FakeHands:
    """The contract's commands, given to the fake library."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml

    def start_process(self, *, gpu: int, pid: int, memory_mib: int | None, sm_percent: int, kind: ProcessKind) -> None:
        """List a process on a GPU."""
        self._nvml.start_process(gpu=gpu, pid=pid, memory_mib=memory_mib, sm_percent=sm_percent, kind=kind.value)

    def stop_process(self, *, pid: int) -> None:
        """Take it off."""
        self._nvml.stop_process(pid=pid)

    def raise_xid(self, *, gpu: int, number: int) -> None:
        """Report an error."""
        self._nvml.raise_xid(gpu=gpu, number=number)

    def lose(self, *, gpu: int) -> None:
        """Let a GPU fall off the bus."""
        self._nvml.lose(gpu=gpu)

    def recover(self, *, gpu: int) -> None:
        """Let it come back."""
        self._nvml.recover(gpu=gpu)

    def hang(self, *, gpu: int) -> None:
        """Let every call about a GPU hang."""
        self._nvml.slow(function="*", gpu=gpu, milliseconds=600_000)

    def unhang(self) -> None:
        """Let the calls that hang come back."""
        self._nvml.mend()

    def remove_driver(self) -> None:
        """Unload the kernel's half."""
        self._nvml.init = NVML_ERROR_DRIVER_NOT_LOADED
        self._nvml.write()

    def mismatch_driver(self) -> None:
        """Leave an upgrade half done."""
        self._nvml.init = NVML_ERROR_LIB_RM_VERSION_MISMATCH
        self._nvml.write()


NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 3, 4, 999
