"""Mutants of the rows of several devices: queues, and what each device does."""

from __future__ import annotations

from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: dict[str, Mutant] = {
    "M5.1": Mutant(
        "a copy does not wait for its source",
        "tilegrad/engine/run/queues.py",
        "            needed[job.source] = -1\n",
        "            pass\n",
    ),
    "M5.2": Mutant(
        "each copy waits anew",
        "tilegrad/engine/run/queues.py",
        "            if self._waited.get((job.device, device), -1) < sync:\n",
        "            if True:\n",
    ),
    "M5.3": Mutant(
        "a SYNC runs before work",
        "tilegrad/engine/run/queues.py",
        "ready, key=lambda each: (each.kind is Kind.SYNC, each.position)",
        "ready, key=lambda each: (each.kind is not Kind.SYNC, each.position)",
    ),
    "M5.4": Mutant(
        "whoever overwrites waits for nobody",
        "tilegrad/engine/run/queues.py",
        "if access.device == job.device or not (is_write or access.is_write):",
        "if access.device == job.device or not access.is_write:",
    ),
    "M6.1": Mutant(
        "shards are equal, and the last elements are nobody's",
        "tilegrad/ir/placement.py",
        "    starts = [number * each + min(number, more) for number in range(count + 1)]\n",
        "    starts = [number * each for number in range(count + 1)]\n",
    ),
    "M6.2": Mutant(
        "a sum over devices is that of the first",
        "tilegrad/schedule/shard.py",
        "found.append(reduce(lambda x, y: x.alu(function, y), here))",
        "found.append(reduce(lambda x, y: x, here))",
    ),
    "M6.3": Mutant(
        "a device copies what it has itself",
        "tilegrad/schedule/shard_moves.py",
        "    if own is None or own == device:\n",
        "    if own is None:\n",
    ),
    "M6.4": Mutant(
        "a sum is read once all devices have it",
        "tilegrad/tensor/results/realized.py",
        "            return memory.is_stored(self.uop)\n        return True\n",
        "            return memory.is_stored(self.uop)\n        return False\n",
    ),
    "M6.5": Mutant(
        "a reduction brings its operand together",
        "tilegrad/schedule/shard.py",
        "            if first.axis not in node.axes:\n",
        "            if first.axis in ():\n",
    ),
    "M6.6": Mutant(
        "each device takes the first range of an operand that is cut",
        "tilegrad/schedule/shard_moves.py",
        "    return shrunk(value, placement.axis, placement.bounds[number])\n",
        "    return shrunk(value, placement.axis, placement.bounds[0])\n",
    ),
    "M6.7": Mutant(
        "shards are padded at the end",
        "tilegrad/schedule/shard_moves.py",
        "        around[axis] = start, size - end\n",
        "        around[axis] = 0, size - end + start\n",
    ),
    "M6.8": Mutant(
        "padding goes to a device that has something",
        "tilegrad/schedule/shard_moves.py",
        "        free = range(first) if first == having[0] else range(0)\n",
        "        free = range(0)\n",
    ),
    "M6.9": Mutant(
        "a captured result of several devices has the memory of the capture",
        "tilegrad/capture/graph.py",
        "            if shard is not None:\n                self.set_buffer(member, shard)\n",
        "            if shard is not None and member not in self._buffers:\n"
        "                self.set_buffer(member, shard)\n",
    ),
    "M6.10": Mutant(
        "a replay's transfer is called a copy",
        "tilegrad/engine/run/run.py",
        'kind="xfer" if moved else "copy"',
        'kind="copy"',
    ),
    "P.4": Mutant(
        "what is made of a split operand is whole on each device",
        "tilegrad/schedule/shard.py",
        "            placement = self._common(node)\n            return placement,",
        "            placement = self._common(node).split_at(None)\n            return placement,",
    ),
}
