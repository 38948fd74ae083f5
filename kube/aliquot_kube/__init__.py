"""The one Kubernetes client: transport, reflector, patches, events, leases. It knows nothing of GPUs and queues."""
