"""Compare with a file that a person has read and found right."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "unit" / "golden"
REWRITE = "ALIQUOT_REWRITE_GOLDEN"


def assert_golden(file: str, text: str) -> None:
    """The text is what the golden file holds; with ALIQUOT_REWRITE_GOLDEN set, it becomes that (then read the diff)."""
    path = GOLDEN / file
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert text == path.read_text(), f"differs from {path.name}; set {REWRITE}=1 to rewrite it, then read the diff"
