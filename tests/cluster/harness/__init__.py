"""A real Kubernetes for tests: control plane and any number of nodes as plain processes of this machine.

How it works: the control plane listens on the loopback interface. A node is a private mount namespace, kept open by
one process, with its own /run, /var/lib and /var/log; its containerd, its kubelet and whatever a test runs "on the
node" are started inside it, so every node finds its files at the usual paths and the machine's own are never touched.

What always holds: everything lives under one work folder, and every process is either a child of ours or sees that
folder in its mounts. So nothing is ever searched for by name, and one sweep finds all that is left of a cluster, also
after the test run itself was killed.
"""
