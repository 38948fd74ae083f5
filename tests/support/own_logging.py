"""A process has one root logger: a test that configures it must leave it as it was.

It was seen: a command that was run in the test's own process set the level to "info", and whichever later test counted
what was logged in the same process counted more.
"""

from __future__ import annotations

import logging
from typing import NamedTuple


class Logging(NamedTuple):
    """What of it holds for the whole process."""

    level: int
    disabled_up_to: int
    handlers: list[logging.Handler]


def logging_now() -> Logging:
    """As it is; pytest's own handlers come and go with each test."""
    root = logging.getLogger()
    ours = [each for each in root.handlers if not type(each).__module__.startswith("_pytest")]
    return Logging(level=root.level, disabled_up_to=root.manager.disable, handlers=ours)


def restore_logging(found: Logging) -> None:
    """Let it be as it was found; pytest's own handlers stay."""
    root = logging.getLogger()
    for each in logging_now().handlers:
        root.removeHandler(each)
    for each in found.handlers:
        root.addHandler(each)
    root.setLevel(found.level)
    logging.disable(found.disabled_up_to)
