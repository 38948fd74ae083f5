"""The cluster in a terminal: what is shown is worked out without one, and drawn by whoever has one."""
