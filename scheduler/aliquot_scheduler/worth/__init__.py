"""What a node's state is worth to the requests the cluster really sees, and what placing a pod there loses of it."""
