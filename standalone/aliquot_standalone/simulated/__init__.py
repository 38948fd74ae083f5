"""Nodes that are not there: the agent's own core on simulated GPUs, pods whose load is what their annotations say."""
