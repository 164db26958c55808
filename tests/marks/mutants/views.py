"""Mutants of sections M1, M2 and M10: views, merging of axes, symbols."""

from __future__ import annotations

from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_VIEW = "tilegrad/ir/view.py"

MUTANTS: dict[str, Mutant] = {
    "M1.1": Mutant(
        "the index of a view is not simplified",
        _VIEW,
        "        return simplify(position), simplify(valid)\n",
        "        return position, simplify(valid)\n",
    ),
    "M1.2": Mutant(
        "a reshape numbers the elements column by column",
        _VIEW,
        "            return View.create(sizes)\n",
        "            return View.create(sizes, row_major(sizes)[::-1])\n",
    ),
    "M1.3": Mutant(
        "permute leaves the strides where they were",
        _VIEW,
        "shape, strides = (tuple(of[axis] for axis in axes) for of in (self.shape, self.strides))",
        "shape, strides = tuple(self.shape[axis] for axis in axes), self.strides",
    ),
    "M1.4": Mutant(
        "an axis that was expanded steps through memory",
        _VIEW,
        "        return View.create(sizes, self.strides, self.offset, tuple(mask))\n",
        "        return View.create(sizes, row_major(sizes), self.offset, tuple(mask))\n",
    ),
    "M1.5": Mutant(
        "every reshape stacks a view",
        "tilegrad/ir/shape_tracker.py",
        "        if view is not None:\n            return self._moved(view)\n"
        "        return ShapeTracker((*self.views, View.create(tuple(shape))))\n",
        "        return ShapeTracker((*self.views, View.create(tuple(shape))))\n",
    ),
    "M1.6": Mutant(
        "a reshape that one set of strides cannot say is taken for a contiguous one",
        _VIEW,
        "(rest := divide(rest, sizes[taken])) is None:\n                    return None\n",
        "(rest := divide(rest, sizes[taken])) is None:\n"
        "                    return View.create(sizes)\n",
    ),
    "M1.7": Mutant(
        "an index leaves out the view next to memory",
        "tilegrad/ir/shape_tracker.py",
        "        for view in reversed(self.views[:-1]):\n",
        "        for view in reversed(self.views[1:-1]):\n",
    ),
    "M1.8": Mutant(
        "remainders of sums are not simplified",
        "tilegrad/ir/rules/division.py",
        "    reduced = {factor: _nearest(scale, divisor) for factor, scale in terms.items()}\n",
        "    return None\n",
    ),
    "M1.9": Mutant(
        "a stacked view loses the mask of the view below it",
        "tilegrad/ir/shape_tracker.py",
        "                below.mask and below.mask[::-1],\n",
        "                None,\n",
    ),
    "M1.10": Mutant(
        "a chain of views is contiguous where its last view is",
        "tilegrad/ir/shape_tracker.py",
        "        return len(self.views) == 1 and self.views[0].contiguous\n",
        "        return self.views[-1].contiguous\n",
    ),
    "M1.11": Mutant(
        "a padding in front does not move the offset",
        _VIEW,
        "            offset = offset - self.strides[axis] * before\n",
        "",
    ),
    "M1.12": Mutant(
        "the grid of memory leaves out what lies at its end",
        "tilegrad/tools/layout.py",
        "range(max(lying, default=-1) + 1)",
        "range(max(lying, default=-1))",
    ),
    "M2.1": Mutant(
        "axes that are neighbours in memory stay apart",
        _VIEW,
        "tidy(stride * size) == last.stride and low == 0",
        "tidy(stride * size) == last.stride == 0 and low == 0",
    ),
    "M2.2": Mutant(
        "an axis that repeats counts as one with elements of its own",
        _VIEW,
        "        backed = 0 if isinstance(stride, int) and stride == 0 else size\n",
        "        backed = size\n",
    ),
    "M2.3": Mutant(
        "axes merge over a mask that leaves gaps",
        _VIEW,
        "tidy(stride * size) == last.stride and low == 0 and high == size:",
        "tidy(stride * size) == last.stride:",
    ),
    "M2.4": Mutant(
        "a reshape may change the number of elements",
        _VIEW,
        "        if any(highest(size) < 0 for size in sizes) or total != self.size:\n",
        "        if any(highest(size) < 0 for size in sizes):\n",
    ),
    "M2.5": Mutant(
        "no two axes become one",
        "tilegrad/schedule/axes.py",
        "        merged = _merge(ast, outer, inner)\n",
        "        merged = None\n",
    ),
    "M10.1": Mutant(
        "short folds are not written out",
        "tilegrad/optimize/generators/heuristic_simt.py",
        "            self.unroll()\n",
        "            pass\n",
    ),
    "M10.2": Mutant(
        "UNROLL of a whole axis leaves it a loop",
        "tilegrad/optimize/opts/opts.py",
        "    inner = Axis.UNROLL if loop.axis is Axis.REDUCE else Axis.UPCAST\n",
        "    inner = Axis.REDUCE\n",
    ),
    "M10.3": Mutant(
        "an amount of 1 is legal",
        "tilegrad/optimize/opts/opts.py",
        "    if not isinstance(amount, int) or amount < 2:\n",
        "    if not isinstance(amount, int) or amount < 1:\n",
    ),
    "M10.4": Mutant(
        "the index of a view with a symbolic size starts at its offset plus one",
        _VIEW,
        "        position = as_node(self.offset)\n",
        "        is_symbolic = any(isinstance(size, UOp) for size in self.shape)\n"
        "        position = as_node(self.offset + is_symbolic)\n",
    ),
    "M10.5": Mutant(
        "a mask is asked from below only",
        _VIEW,
        "            if high != self.shape[axis]:\n",
        "            if high == 0:\n",
    ),
    "M10.6": Mutant(
        "an axis with one valid element keeps its stride",
        _VIEW,
        "                [0 if extent == 1 else stride "
        "for extent, stride in zip(extents, strides)]\n",
        "                [stride for extent, stride in zip(extents, strides)]\n",
    ),
    "M10.7": Mutant(
        "the copies of an index along an unrolled axis count from 1",
        "tilegrad/lower/expand.py",
        "moved_by(self.first, sum(map(mul, self.steps, point)))",
        "moved_by(self.first, sum(self.steps) + sum(map(mul, self.steps, point)))",
    ),
    "M10.8": Mutant(
        "a loop in C runs once more than its extent",
        "tilegrad/render/text_rules.py",
        "{name} = 0; {name} < {ctx.text(u.src[0])}; {name}++",
        "{name} = 0; {name} <= {ctx.text(u.src[0])}; {name}++",
    ),
    "M10.9": Mutant(
        "a kernel made by hand has one block of one lane",
        "tilegrad/engine/build/kernel.py",
        "tuple(program), dims.global_size, dims.local_size)",
        "tuple(program), (1, 1, 1), (1, 1, 1))",
    ),
}
