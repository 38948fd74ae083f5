"""What pods, queues, namespaces and people are told."""
