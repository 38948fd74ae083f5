"""What it costs to weigh code before it is loaded, on the fake driver, which itself hardly reads it.

`.venv/bin/python benchmarks/isolation/loading.py`: medians of native and interposed loads in turn, and how fast what
is packed in fat binaries is unpacked.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.isolation import MIB, Container, World, build
from support.packed import packed
from support.pure_c import ROOT, compiled

RUNS, LOADS = 5, 11
SIZE = 16 * MIB
TEXT_LINE = b"mad.lo.s32 %r4, %r1, %r2, %r3;\n"
CUBIN = 2


def cubin(size: int) -> bytes:
    """One section of so much content, which is loaded."""
    rows = struct.pack("<IIQQQQIIQQ", 0, 1, 2, 0, 128, size, 0, 0, 0, 0)
    head = struct.pack("<4sB11xHHIQQQIHHHHHH", b"\x7fELF", 2, 2, 190, 1, 0, 0, 64, 0, 64, 56, 0, 64, 1, 0)
    return head + rows + os.urandom(size)  # zeros would lie in one page


def fat(content: bytes) -> bytes:
    """One cubin in it, as it is."""
    entry = struct.pack("<HHIQIIIIQQQQ", CUBIN, 0x101, 64, len(content), 0, 0, 0, 90, 0, 0, 0, 0) + content
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def text(size: int) -> bytes:
    """A function of very many lines, and a variable."""
    body = TEXT_LINE * (size // len(TEXT_LINE))
    head = b".version 8.0\n.target sm_90\n.address_size 64\n.global .align 4 .b8 x[100];\n.visible .entry f()\n{\n"
    return head + b".reg .b32 %r<9>;\n" + body + b"ret;\n}\n\0"


IMAGES: dict[str, Callable[[], bytes]] = {
    "cubin": lambda: cubin(SIZE),
    "fat binary": lambda: fat(cubin(SIZE)),
    "text": lambda: text(SIZE // 16),
}


def load(name: str) -> None:
    """In a process of its own: the median of loads, in seconds."""
    driver, image = ctypes.CDLL("libcuda.so.1"), IMAGES[name]()
    context, module, took = ctypes.c_void_p(), ctypes.c_void_p(), []
    assert driver.cuInit(0) + driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    for _ in range(LOADS):
        began = time.perf_counter()
        assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
        took.append(time.perf_counter() - began)
        assert driver.cuModuleUnload(module) == 0
    print(statistics.median(took))


def loads(name: str, container: Container, *, interposed: bool) -> float:
    """The same, from outside."""
    library = container.library if interposed else container.world.built.driver
    told = {
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_CUDA_WORLD": str(container.world.path),
        "FAKE_CUDA_TENANT": str(container.number),
    }
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | told, timeout=120)
    return float(done.stdout)


def unpacking(how: str) -> float:
    """MB of what comes out in a second: of records, which are as much alike as instructions are."""
    library = compiled(*(ROOT / "isolation" / name for name in ("unlz4.c", "unzstd.c", "entropy.c")))
    function = library.unpack_lz4 if how == "lz4" else library.unpack_zstd
    function.restype, function.argtypes = (
        ctypes.c_bool,
        [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64],
    )
    one = next(each for name, each in packed().items() if each.how == how and "records" in name)
    room, times = ctypes.create_string_buffer(len(one.plain) + 1), 200
    began = time.perf_counter()
    for _ in range(times):
        assert function(room, len(one.plain), one.content, len(one.content))
    return times * len(one.plain) / (time.perf_counter() - began) / 1e6


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(built=build(cache=Path(folder)), folder=Path(folder))
        container = world.container(memory_mib=8000)
        for name, make in IMAGES.items():
            megabytes = len(make()) / 1e6
            pairs = [[loads(name, container, interposed=it) for it in (False, True)] for _ in range(RUNS)]
            native, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
            speed = megabytes / (ours - native)
            print(f"{name} of {megabytes:.1f} MB: {native * 1e3:.2f} ms, interposed {ours * 1e3:.2f}: {speed:.0f} MB/s")
        world.close()
    for how in ("lz4", "zstd"):
        print(f"unpacked from {how}: {unpacking(how):.0f} MB/s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1])
    else:
        main()
