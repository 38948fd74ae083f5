"""The GPUs that can be simulated: what their driver says of them.

Totals are what nvidia-smi prints for the card; the reserved part differs by driver release and is near, not exact.
"""

from __future__ import annotations

import msgspec

from aliquot_agent.gpus.known_instances import KnownInstance, read_cut


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model; `nvlinks` is how many lead to each other GPU of the node, 0 for PCIe alone."""

    key: str
    name: str
    memory_total_mib: int
    memory_reserved_mib: int
    compute_capability: str
    architecture: str
    nvlinks: int = 0
    # What it is cut into, in MIG mode.
    instances: tuple[KnownInstance, ...] = ()

    @property
    def card(self) -> str:
        """Its key without what it is cut into."""
        return self.key.partition(":")[0]

    def cut(self, text: str) -> KnownModel:
        """The same in MIG mode, cut into instances as they are written; its key says so."""
        return msgspec.structs.replace(self, key=f"{self.key}:{text.lower()}", instances=read_cut(text, card=self.key))


def _model(key: str, name: str, *, memory: tuple[int, int], chip: str, nvlinks: int = 0) -> KnownModel:
    architecture, _, capability = chip.partition(" ")
    return KnownModel(
        key=key,
        name=name,
        memory_total_mib=memory[0],
        memory_reserved_mib=memory[1],
        compute_capability=capability,
        architecture=architecture,
        nvlinks=nvlinks,
    )


_ALL = (
    _model("P100", "Tesla P100-PCIE-16GB", memory=(16384, 104), chip="pascal 6.0"),
    _model("V100-16GB", "Tesla V100-SXM2-16GB", memory=(16384, 231), chip="volta 7.0", nvlinks=2),
    _model("V100-32GB", "Tesla V100-SXM2-32GB", memory=(32768, 259), chip="volta 7.0", nvlinks=2),
    _model("T4", "Tesla T4", memory=(15360, 466), chip="turing 7.5"),
    _model("RTX-3090", "NVIDIA GeForce RTX 3090", memory=(24576, 313), chip="ampere 8.6"),
    _model("A10", "NVIDIA A10", memory=(23028, 489), chip="ampere 8.6"),
    _model("A30", "NVIDIA A30", memory=(24576, 511), chip="ampere 8.0"),
    _model("A40", "NVIDIA A40", memory=(46068, 585), chip="ampere 8.6"),
    _model("A100-40GB", "NVIDIA A100-SXM4-40GB", memory=(40960, 516), chip="ampere 8.0", nvlinks=12),
    _model("A100-80GB", "NVIDIA A100-SXM4-80GB", memory=(81920, 634), chip="ampere 8.0", nvlinks=12),
    _model("A100-80GB-PCIe", "NVIDIA A100 80GB PCIe", memory=(81920, 634), chip="ampere 8.0"),
    _model("RTX-4090", "NVIDIA GeForce RTX 4090", memory=(24564, 490), chip="ada 8.9"),
    _model("RTX-6000-Ada", "NVIDIA RTX 6000 Ada Generation", memory=(49140, 574), chip="ada 8.9"),
    _model("L4", "NVIDIA L4", memory=(23034, 491), chip="ada 8.9"),
    _model("L40", "NVIDIA L40", memory=(46068, 593), chip="ada 8.9"),
    _model("L40S", "NVIDIA L40S", memory=(46068, 593), chip="ada 8.9"),
    _model("H20", "NVIDIA H20", memory=(97871, 544), chip="hopper 9.0", nvlinks=18),
    _model("H100-80GB", "NVIDIA H100 80GB HBM3", memory=(81559, 551), chip="hopper 9.0", nvlinks=18),
    _model("H200", "NVIDIA H200", memory=(143771, 623), chip="hopper 9.0", nvlinks=18),
    _model("B200", "NVIDIA B200", memory=(183359, 733), chip="blackwell 10.0", nvlinks=18),
)

KNOWN_MODELS = {model.key: model for model in _ALL}
