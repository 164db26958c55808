"""Launches of clusters: blocks that a GPU runs together, so that each may write to the shared
memory of the others. How many there are along the first axis is an attribute of the launch, and of
the node of a graph (CUDA Driver API, "Execution Control" and "Graph Management").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.device.nv_driver import Driver

__all__ = ["launch", "set_node"]


def launch(driver: Driver, function: Any, sizes: Sequence[int], rest: Any, blocks: int) -> None:
    """Launch a kernel: `sizes` are those of the grid and of a block, `rest` the bytes of shared
    memory, the stream, and the address of the arguments.
    """
    asked, stream, arguments = rest
    if blocks == 1:
        driver.call("cuLaunchKernel", function, *sizes, asked, stream, arguments, 0)
        return
    module = driver.module
    config, attribute = module.CUlaunchConfig(), module.CUlaunchAttribute()
    config.gridDimX, config.gridDimY, config.gridDimZ, *lanes = sizes
    config.blockDimX, config.blockDimY, config.blockDimZ = lanes
    config.sharedMemBytes, config.hStream = asked, stream
    attribute.id = module.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    _set(attribute.value, blocks)
    config.attrs, config.numAttrs = [attribute], 1
    driver.call("cuLaunchKernelEx", config, function, arguments, 0)


def set_node(driver: Driver, node: Any, blocks: int) -> None:
    """Give the node of a graph its clusters."""
    if blocks > 1:
        module = driver.module
        value = module.CUlaunchAttributeValue()
        _set(value, blocks)
        kind = module.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        driver.call("cuGraphKernelNodeSetAttribute", node, kind, value)


def _set(value: Any, blocks: int) -> None:
    size = value.clusterDim
    size.x, size.y, size.z = blocks, 1, 1
