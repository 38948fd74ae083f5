"""The kubelet's gRPC interfaces: .proto files written from the published names and numbers, and generated stubs."""
