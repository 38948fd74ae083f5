"""Tests of what is installed on the nodes by the manifests."""
