"""Where a pod fits, how well, and on which GPUs of a node it would lie."""
