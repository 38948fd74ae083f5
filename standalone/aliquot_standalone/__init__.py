"""One machine without Kubernetes: an API server in memory, a small kubelet, and the same agent."""
