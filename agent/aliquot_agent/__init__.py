"""One node: its GPUs, the slices in force on them, and what the node publishes."""
