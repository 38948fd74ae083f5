"""The two files between agent and interposer: limits, which the container can only read, and its account.

Layouts are those of isolation/limits.h and isolation/account.h. Pure: bytes in, bytes out. A number that changes while
the container runs is one aligned word, written in place, for the container has the file itself mounted: a file put in
its place would never be seen.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from operator import add

import msgspec

from aliquot_core.errors import DefectError

LIMITS_MAGIC = b"ALIQLIM1"
ACCOUNT_MAGIC = b"ALIQACC1"
VERSION = 1
MOST_GPUS = 16
ACCOUNT_BYTES = 262_144
WHOLE = 1_000_000

_LONGEST_PATH = 239
_HEAD = struct.Struct("<8sII240s")
_GPU = struct.Struct("<16s8Q48x")
_LIVE = struct.Struct("<8Q")
_METER = struct.Struct("<6Q16x")
_METERS_AT = 1024
# Of what is for launches that pass unpaid, their number.
_PATIENCE = struct.Struct("<24xQ96x")
_PATIENCE_AT = 4096
_SLOTS_AT = 8192
_SLOT = struct.Struct(f"<QII{MOST_GPUS}Q48x")
_SLOT_COUNT_AT = 12
_MOST_SLOTS = 1024
_SLOT_IS = struct.Struct("<QII")
# Behind what the process holds of each GPU: another number each time that the slot is cleared.
_LIFE_AT = _SLOT_IS.size + 8 * MOST_GPUS
_LIFE = struct.Struct("<Q")
# isolation/lending.h: a count, what is lent, and what is borrowed.
_LENDING_AT = _SLOTS_AT + _MOST_SLOTS * _SLOT.size
_BORROWED = struct.Struct("<3Q4I")
_MOST_BORROWED = 512
_BORROWED_AT = _LENDING_AT + 8 + 256 * 40
# isolation/moments.h: the last windows of time, behind all else.
_MOMENTS = struct.Struct("<64Q")
_MOMENTS_AT = ACCOUNT_BYTES - MOST_GPUS * _MOMENTS.size


class GpuLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a container may use of one GPU; shares of time in millionths."""

    uuid: str
    memory: int
    context: int
    guarantee: int
    rate: int
    # How far it may burst; the interposer goes by `rate`, and the agent by this, which so survives a restart.
    limit: int = 0
    # GPU time really used for each moment that work is in flight.
    weight: int = WHOLE
    # Bytes that the driver reports for the container's processes beyond what is in the account.
    unaccounted: int = 0
    # CLOCK_MONOTONIC in nanoseconds at which rate and weight were worked out; 0 is never.
    beat: int = 0


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """The compute side of one GPU as the interposer writes it, in nanoseconds."""

    free_at: int
    in_flight: int
    charged: int
    wanted: int
    held: int
    # For how long any process had work in flight; and all together in the last windows of time, as `turns` reads them.
    busy: int
    moments: tuple[int, ...] = ()
    # How many launches passed although the container owed, because work in flight might have waited for them.
    escapes: int = 0


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Where one process says what it holds: who it is, by its start and by its number in a pid namespace of its own."""

    number: int
    born: int
    pid: int
    namespace: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What a container's processes say they hold: the tenant can write this file, so nothing is granted by it."""

    meters: tuple[Meter, ...]
    # Bytes by GPU, by process id as the container knows it.
    processes: dict[int, tuple[int, ...]]
    # Bytes by GPU that processes have borrowed of each other: charged once, held by several.
    borrowed: tuple[int, ...] = ()


def encode_limits(gpus: Sequence[GpuLimits], *, driver: str) -> bytes:
    """The whole file."""
    if len(gpus) > MOST_GPUS or len(driver.encode()) > _LONGEST_PATH:
        raise DefectError("more GPUs or a longer path than the limits file holds", where=driver)
    parts = [_HEAD.pack(LIMITS_MAGIC, VERSION, len(gpus), driver.encode())]
    parts += [_uuid(gpu) + encode_live(gpu) + bytes(48) for gpu in gpus]
    return b"".join(parts).ljust(_HEAD.size + MOST_GPUS * _GPU.size, b"\0")


def decode_limits(data: bytes) -> tuple[GpuLimits, ...]:
    """Read a file that an agent wrote; none if it is not one."""
    if len(data) != _HEAD.size + MOST_GPUS * _GPU.size or not data.startswith(LIMITS_MAGIC):
        return ()
    _, _, count, _ = _HEAD.unpack_from(data)
    return tuple(_gpu(data, index=index) for index in range(min(count, MOST_GPUS)))


def _gpu(data: bytes, *, index: int) -> GpuLimits:
    raw, *live = _GPU.unpack_from(data, _HEAD.size + index * _GPU.size)
    memory, unaccounted, context, guarantee, rate, weight, beat, limit = live
    return GpuLimits(
        uuid=f"GPU-{uuid.UUID(bytes=raw)}",
        memory=memory,
        context=context,
        guarantee=guarantee,
        rate=rate,
        limit=limit,
        weight=weight,
        unaccounted=unaccounted,
        beat=beat,
    )


def encode_live(gpu: GpuLimits) -> bytes:
    """The words of one GPU that may change while the container runs."""
    times = gpu.guarantee, gpu.rate, gpu.weight, gpu.beat, gpu.limit
    return _LIVE.pack(gpu.memory, gpu.unaccounted, gpu.context, *times)


def live_offset(index: int) -> int:
    """Where in the file those words stand."""
    return _HEAD.size + index * _GPU.size + 16


def decode_account(data: bytes, *, gpus: int) -> Account | None:
    """Read a container's whole account."""
    if len(data) != ACCOUNT_BYTES:
        return None
    return read_account(lambda at, size: data[at : at + size], gpus=gpus)


def read_account(read: Callable[[int, int], bytes], *, gpus: int) -> Account | None:
    """Read what is in use of an account, by offset and size; None while no process has opened it, or if it is not one.

    The tenant may write whatever he likes, and cut the file short while it is read.
    """
    head = read(0, _PATIENCE_AT + gpus * _PATIENCE.size)
    if len(head) != _PATIENCE_AT + gpus * _PATIENCE.size or not head.startswith(ACCOUNT_MAGIC):
        return None
    (count,) = struct.unpack_from("<I", head, _SLOT_COUNT_AT)
    slots = read(_SLOTS_AT, min(count, _MOST_SLOTS) * _SLOT.size)
    (lent,) = struct.unpack("<Q", read(_LENDING_AT, 8).ljust(8, b"\0"))
    borrowed = read(_BORROWED_AT, min(lent, _MOST_BORROWED) * _BORROWED.size) if lent else b""
    moments = read(_MOMENTS_AT, gpus * _MOMENTS.size).ljust(gpus * _MOMENTS.size, b"\0")
    return Account(
        meters=tuple(_meter(head, moments, gpu=gpu) for gpu in range(gpus)),
        processes=_held(slots, gpus=gpus),
        borrowed=_borrowed(borrowed, gpus=gpus),
    )


def read_slots(read: Callable[[int, int], bytes]) -> list[Slot]:
    """The slots of an account that are some process's."""
    (count,) = struct.unpack("<I", read(_SLOT_COUNT_AT, 4).ljust(4, b"\0"))
    data = read(_SLOTS_AT, min(count, _MOST_SLOTS) * _SLOT.size)
    found = (
        Slot(number=number, born=born, pid=pid, namespace=namespace)
        for number, (born, pid, namespace, *_) in enumerate(_whole(_SLOT, data))
    )
    return [one for one in found if one.born]


def freeing(slot: Slot, *, read: Callable[[int, int], bytes]) -> list[tuple[int, bytes]]:
    """What to write where, one after the other, to free the slot of a process that is gone; nothing if it is another's.

    In the order of isolation/account.c: what it borrowed; its life, so that what it lent is its borrowers' to be
    charged for; what it holds; and at last the slot itself, which from then on may be taken.
    """
    borrowed = _whole(_BORROWED, read(_BORROWED_AT, _MOST_BORROWED * _BORROWED.size))
    given_back = [
        (_BORROWED_AT + number * _BORROWED.size, bytes(8))
        for number, (size, *_, borrower, _gpu, _orphan) in enumerate(borrowed)
        if size and borrower == slot.number
    ]
    at = _SLOTS_AT + slot.number * _SLOT.size
    now = read(at, _SLOT.size)
    if len(now) != _SLOT.size or not now.startswith(_SLOT_IS.pack(slot.born, slot.pid, slot.namespace)):
        return []
    (life,) = _LIFE.unpack_from(now, _LIFE_AT)
    return [
        *given_back,
        (at + _LIFE_AT, _LIFE.pack((life + 1) % (1 << 64))),
        (at + _SLOT_IS.size, bytes(8 * MOST_GPUS)),
        (at, bytes(8)),
    ]


def _meter(head: bytes, moments: bytes, *, gpu: int) -> Meter:
    free_at, in_flight, charged, wanted, held, busy = _METER.unpack_from(head, _METERS_AT + gpu * _METER.size)
    (escapes,) = _PATIENCE.unpack_from(head, _PATIENCE_AT + gpu * _PATIENCE.size)
    return Meter(
        free_at=free_at,
        in_flight=in_flight,
        charged=charged,
        wanted=wanted,
        held=held,
        busy=busy,
        moments=_MOMENTS.unpack_from(moments, gpu * _MOMENTS.size),
        escapes=escapes,
    )


def _held(slots: bytes, *, gpus: int) -> dict[int, tuple[int, ...]]:
    """By process; one that loaded the library twice has two slots."""
    held: dict[int, tuple[int, ...]] = {}
    for born, pid, _, *used in _whole(_SLOT, slots):
        if born:
            before = held.get(pid, (0,) * gpus)
            held[pid] = tuple(map(add, before, used))
    return held


def _whole(form: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    """Each entry that is there as a whole."""
    return form.iter_unpack(data[: len(data) - len(data) % form.size])


def _borrowed(data: bytes, *, gpus: int) -> tuple[int, ...]:
    found = [0] * gpus
    for size, _, _, _, _, gpu, _ in _whole(_BORROWED, data):
        if gpu < gpus:
            found[gpu] += size
    return tuple(found)


def _uuid(gpu: GpuLimits) -> bytes:
    try:
        return uuid.UUID(gpu.uuid.removeprefix("GPU-")).bytes
    except ValueError:
        raise DefectError(f"{gpu.uuid!r} is no uuid of a GPU", where="limits file") from None
