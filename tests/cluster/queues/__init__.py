"""Tests of queues before the real centre and kube-scheduler; cards are played."""
