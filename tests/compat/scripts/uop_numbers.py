from tinygrad import UOp, dtypes
from tinygrad.uop.ops import Ops, PatternMatcher, UPat, graph_rewrite

i = UOp.variable("i", 0, 9)
assert i.vmin == 0 and i.vmax == 9
assert (i * 4 + 3).vmax == 39 and ((i * 4) % 4).vmin >= 0
assert UOp.const(dtypes.int, 5).op is Ops.CONST and UOp.const(dtypes.int, 5).arg == 5
assert (i + 1) is (i + 1) and i + 1 in {i + 1}
assert all(node.op in Ops for node in (i * 2 + 1).toposort())
assert PatternMatcher and UPat and graph_rewrite
checked = 6
