"""NVML's calls through nvidia-ml-py, with our errors, and a memory of what this driver can't do.

Old drivers lack the newer functions and some cards lack features. The binding looks a function up by name at every
call, and a driver asked for what it does not support may take its time to say so; so both are remembered and answered
with None until NVML is initialised again. All of it runs on the NVML thread.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pynvml

from aliquot_agent.gpus.driver import (
    DriverFailedError,
    GpuDriverError,
    GpuFailedError,
    OneGpuError,
    driver_mismatch,
    driver_missing,
    gpu_lost,
)

_CANNOT = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION}
)
_NOTHING_NOW = frozenset({pynvml.NVML_ERROR_NO_DATA, pynvml.NVML_ERROR_NOT_READY})
_LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND})
_READ_AGAIN = 3
_NO_DRIVER = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})


class UninitializedError(DriverFailedError):
    """Somebody shut NVML down under us; initialising it again mends that."""


class Device:
    """One GPU's handle, good until NVML is shut down."""

    __slots__ = ("handle", "uuid", "where")

    def __init__(self, *, handle: Any, uuid: str, where: str) -> None:
        self.handle = handle
        self.uuid = uuid
        self.where = where


class Binding:
    """The one place that calls pynvml."""

    def __init__(self) -> None:
        self._cannot: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Ask anew for everything: the driver may be another."""
        self._cannot.clear()

    def system(self, name: str, *arguments: Any) -> Any:
        """Call what is not about one GPU."""
        try:
            return _ask(name, *arguments)
        except pynvml.NVMLError as error:
            raise _driver_error(error, name=name) from None

    def must(self, name: str, *arguments: Any, where: str) -> Any:
        """Call something about one GPU without which it is of no use."""
        try:
            return _ask(name, *arguments)
        except pynvml.NVMLError as error:
            raise _gpu_error(error, name=name, where=where) from None

    def may(self, *names: str, device: Device, arguments: tuple[Any, ...] = (), empty: Collection[int] = ()) -> Any:
        """Call the first of these functions that the driver has; None if it can't answer, () for the `empty` codes."""
        for name in names:
            if (name, device.uuid) in self._cannot:
                continue
            try:
                return _ask(name, device.handle, *arguments)
            except pynvml.NVMLError as error:
                if error.value in empty:
                    return ()
                if error.value in _CANNOT:
                    self._cannot.add((name, device.uuid))
                elif error.value not in _NOTHING_NOW:
                    raise _gpu_error(error, name=name, where=device.where) from None
        return None

    def unless(self, codes: Collection[int], name: str, *arguments: Any, where: str) -> Any:
        """Call something about one GPU; None if it answers with one of these codes."""
        try:
            return _ask(name, *arguments)
        except pynvml.NVMLError as error:
            if error.value in codes:
                return None
            raise _gpu_error(error, name=name, where=where) from None


def _ask(name: str, *arguments: Any) -> Any:
    """Call pynvml; a list that grew between the question how long it is and the reading is read again."""
    for _ in range(_READ_AGAIN):
        try:
            return getattr(pynvml, name)(*arguments)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return getattr(pynvml, name)(*arguments)


def _gpu_error(error: Any, *, name: str, where: str) -> OneGpuError | GpuDriverError:
    if error.value in _LOST:
        return gpu_lost(where=where)
    if error.value in (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_UNINITIALIZED):
        return _driver_error(error, name=name)
    remedy = "see the kernel log for this GPU's XIDs; if nothing is there, run nvidia-smi -q for it"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        remedy = "it takes root: start what asks for it as root, or share the GPU in another mode"
    return GpuFailedError(f"{name} answers {error.value} ({error})", where=where, remedy=remedy)


def _driver_error(error: Any, *, name: str) -> GpuDriverError:
    if error.value in _NO_DRIVER:
        return driver_missing(library=error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return driver_mismatch()
    kind = UninitializedError if error.value == pynvml.NVML_ERROR_UNINITIALIZED else DriverFailedError
    return kind(
        f"{name} answers {error.value} ({error})",
        where="NVML",
        remedy="run nvidia-smi on the node: if it fails in the same way the driver needs a reload or a reboot",
    )
