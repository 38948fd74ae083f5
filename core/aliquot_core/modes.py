"""The modes of isolation by name, from the one that only watches to the one the hardware holds."""

from __future__ import annotations

# Every GPU has it: use is measured, nothing is held back.
OBSERVE = "observe"
INTERPOSER, MPS, MIG = "interposer", "mps", "mig"
# From the weakest to the strongest.
MODES = (OBSERVE, INTERPOSER, MPS, MIG)
