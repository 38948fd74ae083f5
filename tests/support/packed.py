"""What is packed in tests, and how packers of others packed it: zstd 1.5.4 and LZ4 1.9.4, whose output lies beside."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PACKED = Path(__file__).parent.parent / "isolation" / "packed.json"


def numbers(below: int) -> Iterator[int]:
    """The same ones for ever, so that what was packed once can be made again."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield (state >> 33) % below


def _dice() -> bytes:
    return bytes(byte for byte, _ in zip(numbers(256), range(300), strict=False))


def _skewed() -> bytes:
    return bytes((byte * byte) >> 11 for byte, _ in zip(numbers(256), range(2500), strict=False))


def _text() -> bytes:
    words = ["global", "shared", "param", "add.s32", "mul.f64", "%r1", "%rd7", ";\n", "\t", ", ", "[", "]"]
    return "".join(words[at] for at, _ in zip(numbers(len(words)), range(1500), strict=False)).encode()


def _records() -> bytes:
    found = zip(range(12_000), numbers(40), strict=False)
    return b"".join((at >> 4).to_bytes(4, "little") + bytes(8 if odd else 12) + b"\x40\x02" for at, odd in found)


def _far() -> bytes:
    return _dice() + bytes(40_000) + _dice() + _text()[:500] + bytes(200_000) + _dice()


def _beads() -> bytes:
    dice = _dice()
    beads = zip(range(6500), numbers(200), strict=False)
    return dice + b"".join(b"z" + dice[at : at + 20] for _, at in beads)


def _rings() -> bytes:
    return b"".join(bytes([at]) + _dice()[:64] for at, _ in zip(numbers(256), range(60), strict=False))


PLAIN: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "short": lambda: b"a short one, a short one",
    "dice": _dice,
    "few": lambda: bytes(at * at for at, _ in zip(numbers(4), range(180), strict=False)),
    "zeros": lambda: bytes(300_000),
    "beads": _beads,
    "rings": _rings,
    "skewed": _skewed,
    "text": _text,
    "records": _records,
    "far": _far,
}


@dataclass(frozen=True, kw_only=True)
class Packed:
    """One of them as one packer packed it."""

    how: str
    plain: bytes
    content: bytes


def packed() -> dict[str, Packed]:
    """All of them, by name."""
    told = json.loads(_PACKED.read_text())
    return {
        f"{plain} {how}": Packed(how=how.split()[0], plain=PLAIN[plain](), content=base64.b64decode(content))
        for plain, by in told.items()
        for how, content in by.items()
    }
