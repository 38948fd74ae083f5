"""What the node says of itself in the cluster: its object, its heart-beat, and taking both back."""
