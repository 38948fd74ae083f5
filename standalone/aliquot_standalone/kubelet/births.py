"""When processes were born: a number alone is given to another one in time."""

from __future__ import annotations

from pathlib import Path


def birth(pid: int) -> str | None:
    """When a live process was born, as `boot:ticks`; None for one that is gone or a zombie."""
    try:
        # The name in brackets may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{ticks}"
