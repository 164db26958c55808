"""Mutants of sections X and P: what users meet, and what it is for."""

from __future__ import annotations

from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: dict[str, Mutant] = {
    "X.1": Mutant(
        "a list of integers makes floats",
        "tilegrad/tensor/storage/host_memory.py",
        "    if kinds <= {bool, int} and values:\n        return dtypes.default_int\n",
        "",
    ),
    "X.2": Mutant(
        "integers divide as integers",
        "tilegrad/tensor/elementwise/arithmetic.py",
        '        return x._binary("div", Ops.FDIV, other, swap=swap)\n',
        "        if self.dtype.is_int:\n            return self._floor_divide(other, swap=swap)\n"
        '        return x._binary("div", Ops.FDIV, other, swap=swap)\n',
    ),
    "X.3": Mutant(
        "a seed does not begin its stream anew",
        "tilegrad/tensor/indexing/generator.py",
        "self.seed, self.drawn, self.forks = seed & (2**64 - 1), 0, 0",
        "self.seed, self.forks = seed & (2**64 - 1), 0",
    ),
    "X.4": Mutant(
        "EXPAND_SSA does nothing",
        "tilegrad/render/clike.py",
        "inlined(program, bool(config.EXPAND_SSA))",
        "inlined(program, False)",
    ),
    "P.1": Mutant(
        "tensors are listed in the order of the attributes",
        "tilegrad/nn/tree.py",
        "(others if not has_attributes else state if found[4] else trained).append(found)",
        "others.append(found)",
    ),
    "P.3": Mutant(
        "no stored value moves into the kernel that reads it",
        "tilegrad/schedule/fuse.py",
        '    ("schedule.inline", _inline),\n',
        "",
    ),
    "P.5": Mutant(
        "languages like C find unequal what is equal",
        "tilegrad/render/dialect.py",
        '    Ops.CMPNE: "({0}!={1})",\n',
        '    Ops.CMPNE: "({0}=={1})",\n',
    ),
    "P.11": Mutant(
        "installed packages bring no devices",
        "tilegrad/device/outside.py",
        'GROUP = "tilegrad.devices"\n',
        'GROUP = "tilegrad.backends"\n',
    ),
    "P.10": Mutant(
        "minimum has the sign of the mirrored maximum",
        "tilegrad/tensor/elementwise/choices.py",
        'return left._mirrored()._binary("minimum", Ops.MAX, right._mirrored())._mirrored()',
        'return left._mirrored()._binary("minimum", Ops.MAX, right._mirrored())',
    ),
    "P.12": Mutant(
        "there is an op for products of matrices",
        "tilegrad/ir/op.py",
        '    CMPLT = op(2, "x < y."',
        '    MATMUL = op(2, "x @ y.", evaluate=operator.lt, symbol="@", boolean=True)\n'
        '    CMPLT = op(2, "x < y."',
    ),
    "P.13": Mutant(
        "a list that is no faster replaces the default",
        "tilegrad/optimize/search/search.py",
        "        chosen, share, default = self.default, _MARGIN, statistics.median(base)\n",
        "        chosen, share, default = self.default, 2.0, statistics.median(base)\n",
    ),
    "P.14": Mutant(
        "only the last kernel of a script is kept",
        "tilegrad/tools/show.py",
        "        if each.name == _LOWER[0]:\n",
        "        if each.name == _LOWER[0]:\n            found.clear()\n",
    ),
    "P.15": Mutant(
        "the renderers import the compiler",
        "tilegrad/render/cstyle.py",
        "from tilegrad.render.clang import ClangRenderer\n",
        "import tilegrad.compile.llvm\nfrom tilegrad.render.clang import ClangRenderer\n",
    ),
}
