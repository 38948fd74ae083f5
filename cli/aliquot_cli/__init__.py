"""The command `aliquot`, and the composition roots: where each process is put together."""
