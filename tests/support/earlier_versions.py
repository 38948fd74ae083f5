"""Earlier versions of Aliquot, to be run beside this one: tests/support/earlier/README.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

EARLIER = Path(__file__).with_name("earlier")
ARCHIVES = sorted(EARLIER.glob("*/centre.tar.xz"))


def unpacked(archive: Path, folder: Path) -> list[Path]:
    """Where the packages of a version lie now."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return sorted(folder.iterdir())


def understood(texts: Mapping[str, str], *, reader: Path, code: Sequence[Path]) -> dict[str, Any]:
    """What the version whose packages lie there understands of texts, by their kinds."""
    answer = subprocess.run(
        [sys.executable, str(reader)],
        input=msgspec.json.encode(texts),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, code))},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=dict[str, Any])
