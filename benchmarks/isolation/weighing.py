"""What the fat binaries of real libraries are charged, how much code is in them, and what it takes to find out.

Without a GPU: as on one of a given compute capability. Libraries are whatever is installed, as NVIDIA's own.

Run:  .venv/bin/python benchmarks/isolation/weighing.py 90 LIBRARY...
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ISOLATION: Final = Path(__file__).parent.parent.parent / "isolation"
SOURCES: Final = ("fat", "loadable", "weights", "ptx", "ptx_tokens", "unlz4", "unzstd", "entropy")
MAGIC: Final = struct.pack("<I", 0xBA55ED50)
REFUSED: Final = (1 << 64) - 1
MIB: Final = 1 << 20
GPU: Final = """
#include <stdbool.h>
bool gpus_may_load(unsigned machine) {{ return !machine || (machine / 10 == {kind} / 10 && machine <= {kind}); }}
bool gpus_may_compile(unsigned machine) {{ return machine <= {kind}; }}
"""


def weigher(kind: int, folder: Path) -> ctypes.CDLL:
    """What weighs code, on a node with one such GPU."""
    (folder / "gpu.c").write_text(GPU.format(kind=kind))
    sources = [*(ISOLATION / f"{name}.c" for name in SOURCES), folder / "gpu.c"]
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", f"-I{ISOLATION}", "-o"]
    subprocess.run([*command, folder / "weigher.so", *sources], check=True)
    loaded = ctypes.CDLL(str(folder / "weigher.so"))
    loaded.fat_keep_known.restype = ctypes.c_uint64
    loaded.fat_keep_known.argtypes = ctypes.c_char_p, ctypes.c_uint64
    return loaded


def fat_binaries(content: bytes) -> Iterator[bytes]:
    """All that lie in a file."""
    at = 0
    while (at := content.find(MAGIC, at)) >= 0:
        version, head, length = struct.unpack_from("<HHQ", content, at + 4)
        end = at + head + length
        if version == 1 and head == 16 and end <= len(content):
            yield content[at:end]
            at = end
        else:
            at += len(MAGIC)


def main(kind: int, libraries: list[Path]) -> None:
    """Print a row of a table for each library."""
    print("| library | fat binaries | MiB of them | charged MiB | refused | CPU s |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        weighs = weigher(kind, Path(folder)).fat_keep_known
        for library in libraries:
            found = list(fat_binaries(library.read_bytes()))
            copies = [ctypes.create_string_buffer(one, len(one)) for one in found]
            before = time.process_time()
            weights = [weighs(copy, len(one)) for copy, one in zip(copies, found, strict=True)]
            spent = time.process_time() - before
            charged = sum(weight for weight in weights if weight != REFUSED) / MIB
            sizes = f"{len(found)} | {sum(map(len, found)) / MIB:.0f} | {charged:.0f}"
            print(f"| {library.name} | {sizes} | {weights.count(REFUSED)} | {spent:.2f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
