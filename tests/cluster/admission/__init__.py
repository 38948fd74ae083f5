"""Tests of what an API server lets in, on a control plane without nodes: nothing runs there."""
