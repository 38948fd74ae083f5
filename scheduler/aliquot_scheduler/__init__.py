"""The centre: one picture of the cluster's GPUs, one decision for each pod, one write."""
