"""Parts of the interposer that know no driver and no clock, compiled and called from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.require import skip_or_fail

ROOT = Path(__file__).parent.parent.parent
_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]


def compiled(*sources: Path) -> ctypes.CDLL:
    """A library of these sources; they may include the interposer's headers."""
    if not shutil.which("gcc"):
        skip_or_fail("native", "gcc is not installed")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "compiled.so"
        command = ["gcc", *_FLAGS, f"-I{ROOT / 'isolation'}", "-o", str(library), *map(str, sources)]
        subprocess.run(command, check=True, timeout=180)
        return ctypes.CDLL(str(library))
