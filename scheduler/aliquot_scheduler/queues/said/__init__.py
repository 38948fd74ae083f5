"""What Queues say: read, checked together, and made into the tree that is counted by."""
