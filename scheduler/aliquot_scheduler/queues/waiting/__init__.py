"""Who waits where, in which order, who was let in, and whom that is charged to."""
