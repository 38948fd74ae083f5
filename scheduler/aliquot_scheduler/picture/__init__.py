"""What the centre knows of the cluster: nodes, their GPUs, and who holds what of them."""
