"""A Kubernetes API server in memory, for one machine: enough of the real protocol for Aliquot, its users and kubectl.

`store` keeps revisions and history, `verbs` applies the rules of each kind, `frontend` turns requests into answers:
all three pure (time and randomness are handed in). `http` is the only part that does I/O.
"""
