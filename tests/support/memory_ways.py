"""By what names the tenant of tests/isolation takes memory: every way to have some of a GPU's that a driver offers."""

from __future__ import annotations

WAYS = [
    *["linear", "managed", "pitched", "async", "async-thread", "pool", "pool-thread", "orphan"],
    *["array", "array3d", "mipmap", "handle", "mapped", "external", "context", "context-three", "context-four"],
    *["context-attached", "exported", "exported-closed", "unbindable", "unbindable-address"],
    *["heap", "stack", "module", "fat", "file", "text", "library", "library-file", "graph", "graph-thread"],
    *["numbered", "segment", "wrapped", "packed", "packed-zstd", "linked", "fat-mapped", "disguised"],
    *["text-managed", "text-hex", "text-vectors", "text-remark", "text-fat", "text-dots", "text-percent"],
    *["private", "private-with", "private-bare", "context-private"],
    *["graph-upload", "graph-upload-thread", "graph-made", "graph-made-thread"],
]
# Of these a process never gets rid again: the driver holds the memory for something that nobody can follow.
KEPT = ["sparse", "sparse-thread", "multicast", "multicast-two", "multicast-address", "multicast-address-two"]
# Of this there is nothing for the GPU: no driver loads any.
NOTHING = ["foreign"]
