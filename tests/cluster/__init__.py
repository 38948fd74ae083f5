"""Tests on a real Kubernetes, and what they are made of."""
