"""The endpoint: the small process that the kubelet sees, hardly ever replaced. README.md tells how it works."""
