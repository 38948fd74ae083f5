"""A container's way to its slice: whose ids they are, whether it may start, and who is told if not."""
