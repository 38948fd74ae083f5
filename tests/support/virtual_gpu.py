"""A GPU without time, on which the interposer's own pacing holds launches back: tests/isolation/virtual_gpu.c.

Time passes as the test says, and what comes out is the same on any machine. Here is the agent's part: ten times a
second it reads what the containers' accounts say, and writes their limits, in the layout of the real files.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from aliquot_agent.isolation.limits_file import (
    ACCOUNT_BYTES,
    ACCOUNT_MAGIC,
    WHOLE,
    Account,
    GpuLimits,
    encode_limits,
    encode_live,
    live_offset,
    read_account,
)
from aliquot_agent.isolation.pacemaker import seen_of
from aliquot_agent.isolation.pacing import Pace, Share, next_beat
from support.pure_c import ROOT, compiled

SECOND = 1_000_000_000
_BEAT = SECOND // 10
_PURE = ("pace_core.c", "patience.c", "meter.c", "moments.c")
_UUID = "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a000"
_GPU_LIMITS_AT = live_offset(0) - 16
# Kernels of a fifth of a millisecond.
SHORT = (200_000,)


@functools.cache
def _library() -> ctypes.CDLL:
    """The pure parts of the interposer with the GPU around them, compiled once."""
    sources = [ROOT / "isolation" / name for name in _PURE]
    loaded = compiled(*sources, ROOT / "tests" / "isolation" / "virtual_gpu.c")
    number, pointer, index = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("make", pointer, ()),
        ("slice", index, (pointer, pointer, pointer)),
        ("program", index, (pointer, index, pointer, number, number, number)),
        ("run", None, (pointer, number)),
        ("now", number, (pointer,)),
        ("used", number, (pointer, index)),
        ("launched", number, (pointer, index)),
    ):
        function = getattr(loaded, f"virtual_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


@dataclass(frozen=True, kw_only=True)
class Program:
    """One process: launches a batch of kernels, waits for them, does something else for a while, and so on."""

    batch: int = 100
    # In nanoseconds; from the first again after the last.
    lengths: Sequence[int] = SHORT
    idle: int = 0


@dataclass(kw_only=True)
class Slice:
    """One container and what is in force for it."""

    share: Share
    programs: Sequence[Program] = ()


@dataclass(kw_only=True)
class _Files:
    """What the container and its agent share, in memory."""

    limits: bytearray
    account: bytearray


@dataclass(kw_only=True)
class VirtualGpu:
    """One GPU and those who contend for it."""

    slices: Sequence[Slice]
    # Whether an agent is there.
    paced: bool = True
    _files: list[_Files] = field(default_factory=list)
    _kept: list[object] = field(default_factory=list)
    _paces: dict[str, Pace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let all of them begin."""
        self._library = _library()
        self._gpu = self._library.virtual_gpu_make()
        for number, one in enumerate(self.slices):
            self._files.append(_files(one.share))
            limits = _address(self._files[-1].limits) + _GPU_LIMITS_AT
            self._library.virtual_gpu_slice(self._gpu, _address(self._files[-1].account), limits)
            for program in one.programs:
                self.begin(number, program)
        self._next_beat = self.now + _BEAT

    @property
    def now(self) -> int:
        """Its time."""
        return int(self._library.virtual_gpu_now(self._gpu))

    def begin(self, number: int, program: Program) -> int:
        """Let a process of a slice begin; by what number it is known."""
        lengths = (ctypes.c_uint64 * len(program.lengths))(*program.lengths)
        self._kept.append(lengths)
        told = ctypes.addressof(lengths), len(lengths), program.batch, program.idle
        return int(self._library.virtual_gpu_program(self._gpu, number, *told))

    def launched(self, program: int) -> int:
        """How far it came in its list."""
        return int(self._library.virtual_gpu_launched(self._gpu, program))

    def account(self, number: int) -> Account:
        """What a slice's account says."""
        content = self._files[number].account
        found = read_account(lambda at, size: bytes(content[at : at + size]), gpus=1)
        assert found is not None
        return found

    def run(self, seconds: float) -> list[float]:
        """Let time pass; percent of the GPU that each slice used meanwhile."""
        before, began = self._used(), self.now
        end = began + round(seconds * SECOND)
        while self.now < end:
            self._library.virtual_gpu_run(self._gpu, min(end, self._next_beat) - self.now)
            if self.now >= self._next_beat:
                self._beat()
        return [100 * (late - early) / (self.now - began) for early, late in zip(before, self._used(), strict=True)]

    def _used(self) -> list[int]:
        return [int(self._library.virtual_gpu_used(self._gpu, number)) for number in range(len(self.slices))]

    def _beat(self) -> None:
        """What the agent does ten times a second."""
        self._next_beat = self.now + _BEAT
        if not self.paced:
            return
        shares = {str(number): one.share for number, one in enumerate(self.slices)}
        seen = {str(number): seen_of(self.account(number).meters[0]) for number in range(len(self.slices))}
        self._paces = next_beat(shares, self._paces, seen, now=self.now, since=self.now - _BEAT)
        for name, pace in self._paces.items():
            limits = _limits(shares[name], rate=pace.rate, weight=pace.weight, beat=self.now)
            at, words = live_offset(0), encode_live(limits)
            self._files[int(name)].limits[at : at + len(words)] = words


def contending(
    shares: Sequence[int], *, processes: Sequence[int] = (), batch: int = 100, lengths: Sequence[int] = SHORT
) -> VirtualGpu:
    """Slices of so many percent that all want more, each with so many processes, or one."""
    counts = processes or [1] * len(shares)
    return VirtualGpu(
        slices=[
            Slice(
                share=Share(guarantee=share / 100, limit=share / 100),
                programs=[Program(batch=batch, lengths=lengths)] * count,
            )
            for share, count in zip(shares, counts, strict=True)
        ]
    )


def _files(share: Share) -> _Files:
    limits = encode_limits([_limits(share, rate=share.guarantee)], driver="")
    return _Files(limits=bytearray(limits), account=bytearray(ACCOUNT_MAGIC.ljust(ACCOUNT_BYTES, b"\0")))


def _address(memory: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _limits(share: Share, *, rate: float, weight: float = 1.0, beat: int = 0) -> GpuLimits:
    return GpuLimits(
        uuid=_UUID,
        memory=0,
        context=0,
        guarantee=round(share.guarantee * WHOLE),
        rate=round(rate * WHOLE),
        weight=round(weight * WHOLE),
        beat=beat,
    )
