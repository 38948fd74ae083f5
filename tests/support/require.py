"""What happens when a test cannot run here: it is skipped, or it fails where its part is required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRED_PARTS = "ALIQUOT_REQUIRE"


def skip_or_fail(part: str, reason: str) -> NoReturn:
    """Skip with the reason, or fail with it if `ALIQUOT_REQUIRE` (a comma-separated list) names the part."""
    required = {name.strip() for name in os.environ.get(REQUIRED_PARTS, "").split(",")}
    if part in required:
        pytest.fail(f"{REQUIRED_PARTS} names {part!r}, but {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
