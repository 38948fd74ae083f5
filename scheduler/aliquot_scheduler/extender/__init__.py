"""How kube-scheduler asks us: filter, prioritize, preempt and bind over HTTP, answered by the leader."""
