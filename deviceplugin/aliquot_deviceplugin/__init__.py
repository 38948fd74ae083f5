"""Speaks to the kubelet: the endpoint it registers, its PodResources and its checkpoint."""
