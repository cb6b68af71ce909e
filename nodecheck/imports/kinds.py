"""Every kind of output that is understood, the most exact first: where two tell the same, the first one's counts."""

from __future__ import annotations

from nodecheck.imports.kind import Kind
from nodecheck.imports.readers import (
    amd_smi,
    collect_env,
    dcgm,
    fabric_manager,
    kernel_log,
    nccl_tests,
    nvbandwidth,
    nvidia_lists,
    nvidia_query,
    nvidia_table,
    nvidia_topology,
    pci,
    rocm_smi,
    rocminfo,
)

KINDS: tuple[Kind, ...] = (
    *nvidia_query.KINDS,
    *nvidia_table.KINDS,
    *nvidia_lists.KINDS,
    *nvidia_topology.KINDS,
    *amd_smi.KINDS,
    *rocm_smi.KINDS,
    *rocminfo.KINDS,
    *pci.KINDS,
    *fabric_manager.KINDS,
    *kernel_log.KINDS,
    *nccl_tests.KINDS,
    *nvbandwidth.KINDS,
    *collect_env.KINDS,
    *dcgm.KINDS,
)
