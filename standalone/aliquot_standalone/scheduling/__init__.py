"""kube-scheduler's part on one machine: which node a pod goes to, with the extender asked as kube-scheduler asks it."""
