"""What a container gets of its slice, written as a CDI spec of its own just before the kubelet creates it.

The stations: `driver_files` says what a container needs of one GPU (read from the node's NVIDIA spec by `nvidia_spec`,
or found by `discovery`); `slice_spec` composes that with the limits into one spec; `store` puts it where the runtime
looks. Everything between reading and writing is pure.

Who may use a slice's CDI name: whoever knows its token, for a runtime gives a CDI device to any container that names
it. So the token is random and only root can learn it: it stands in the spec file (mode 0600), whose name is a digest
of it, because the folder is other vendors' too and anybody may list it; and in the kubelet's checkpoint, which is
root's. A pod that names our kind at all is refused (`aliquot_core.impostors`).
"""
