"""A small kubelet: the real gRPC to device plugins, pods as local processes, no containers and no images."""
