"""Waiting with a deadline, for all on the node.

It is written in `kube`; this is the door to it for who speaks to the kubelet and so may not import `kube`.
"""

from __future__ import annotations

from aliquot_kube.pacing import settled, sleep_unless, within

__all__ = ["settled", "sleep_unless", "within"]
