"""Rounding, and the names of bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import grantable_memory, throttle_reasons, used_memory

MIB = 1024 * 1024
sizes = st.integers(min_value=0, max_value=2**40)


@given(total=sizes, reserved=sizes)
def test_no_memory_is_promised_that_is_not_there(total: int, reserved: int) -> None:
    """What can be granted is the whole MiB of what is really free of the driver's share, never more, never negative."""
    total_mib, reserved_mib = grantable_memory(total_bytes=total, reserved_bytes=reserved)
    usable_bytes = (total_mib - reserved_mib) * MIB
    real = max(0, total - reserved)
    assert 0 <= real - usable_bytes < MIB
    assert 0 <= reserved_mib <= total_mib


@given(used=sizes)
def test_use_is_never_understated(used: int) -> None:
    """Used memory is rounded up by less than a MiB."""
    assert 0 <= used_memory(used) * MIB - used < MIB


def test_negative_use_is_none() -> None:
    """A driver whose sums don't add up makes no negative use."""
    assert used_memory(-5 * MIB) == 0


def test_unknown_throttle_bits_are_left_out() -> None:
    """Known bits are named in their order, others ignored."""
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0xF000_0005) == ("idle", "power-cap")
