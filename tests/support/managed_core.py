"""The interposer's rules for managed memory over several GPUs, compiled and called from Python."""

from __future__ import annotations

import ctypes
import functools

from support.pure_c import ROOT, compiled

MOST_GPUS = 16
BY_STREAM, BY_THREAD, BY_ADVICE = range(3)
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_uint64


class Lane(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (("stream", _POINTER), ("context", _POINTER), ("by", ctypes.c_int))


class Range(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (("address", _NUMBER), ("bytes", _NUMBER), ("gpu", ctypes.c_int))


class Placing(ctypes.Structure):
    """The head of one, as in managed_core.h."""

    _fields_ = (("next", _POINTER), ("lane", Lane), ("copies", ctypes.c_bool))


class Taking(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (
        ("next", _POINTER),
        ("begun", _NUMBER),
        ("guard", _NUMBER),
        ("home", ctypes.c_int),
        ("guarded", ctypes.c_uint16),
    )


class Passage(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (
        ("next", _POINTER),
        ("blocks", _POINTER),
        ("event", _POINTER),
        ("context", _POINTER),
        ("owner", _POINTER),
    )


class _Map(ctypes.Structure):
    _fields_ = (("rows", _POINTER), ("size", ctypes.c_size_t), ("count", ctypes.c_size_t))


class Core(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (
        ("blocks", _POINTER),
        ("shared", _Map),
        *((name, _POINTER) for name in ("placings", "past", "vacated", "takings", "bringers", "passages", "over")),
        ("steps", _NUMBER),
        ("freed", _NUMBER * MOST_GPUS),
    )


class Fresh(ctypes.Structure):
    """As in managed_core.h."""

    _fields_ = (("bytes", _NUMBER * MOST_GPUS),)


@functools.cache
def library() -> ctypes.CDLL:
    """Compiled once."""
    names = ("managed_core.c", "managed_guards.c", "managed_past.c", "managed_blocks.c", "spans.c", "map.c")
    loaded = compiled(*(ROOT / "isolation" / name for name in names))
    core, fresh, taking = ctypes.POINTER(Core), ctypes.POINTER(Fresh), ctypes.POINTER(Taking)
    for name, result, arguments in (
        ("managed_core_taking", None, (core, taking, ctypes.c_int, _NUMBER)),
        ("managed_core_is_met", ctypes.c_bool, (core, taking)),
        ("managed_core_guard", None, (core, taking, fresh)),
        ("managed_core_guarded", None, (core, taking)),
        ("managed_core_taken", None, (core, taking)),
        ("managed_core_enter", _POINTER, (core, taking, Range)),
        ("managed_core_meets", ctypes.c_bool, (core, ctypes.POINTER(Placing))),
        ("managed_core_vacated", None, (core, _POINTER)),
        ("managed_core_leave", None, (core, _POINTER)),
        ("managed_placing", ctypes.POINTER(Placing), (ctypes.POINTER(Range), ctypes.c_size_t, Lane)),
        ("managed_core_plan", ctypes.c_bool, (core, ctypes.POINTER(Placing), fresh)),
        ("managed_core_begin", None, (core, ctypes.POINTER(Placing))),
        ("managed_core_drop", None, (core, ctypes.POINTER(Placing))),
        ("managed_core_is_followed", ctypes.c_bool, (core, ctypes.POINTER(Placing))),
        ("managed_core_end", None, (core, ctypes.POINTER(Placing), ctypes.POINTER(Passage), ctypes.c_bool)),
        ("managed_core_passed", None, (core, ctypes.POINTER(Passage), ctypes.c_bool)),
        ("managed_core_let_go", None, (core, _POINTER)),
        ("managed_core_let_green_go", None, (core, _POINTER, _POINTER)),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
