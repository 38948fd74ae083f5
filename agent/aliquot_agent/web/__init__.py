"""What the agent says of itself to Prometheus and to probes: who uses what, how long answers take, whether it lives."""
