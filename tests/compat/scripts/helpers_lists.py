import math

from tinygrad.helpers import (
    all_int,
    all_same,
    argfix,
    argsort,
    ceildiv,
    dedup,
    flatten,
    fully_flatten,
    get_child,
    make_tuple,
    merge_dicts,
    partition,
    prod,
    round_up,
    unwrap,
)  # fmt: skip

assert prod([2, 3, 4]) == 24 == math.prod([2, 3, 4]) and prod(()) == 1
assert dedup([3, 1, 3, 2, 1]) == [3, 1, 2]
assert flatten([[1], [2, 3], []]) == [1, 2, 3]
assert fully_flatten([1, [2, (3, [4])]]) == [1, 2, 3, 4]
assert argfix(1, 2) == argfix((1, 2)) == argfix([1, 2]) == (1, 2)
assert argsort((3, 1, 2)) == (1, 2, 0) and argsort([2, 1]) == [1, 0]
assert all_same([1, 1]) and all_same([]) and not all_same([1, 2])
assert all_int((1, 2)) and not all_int((1, 2.5))
assert make_tuple(3, 2) == (3, 3) and make_tuple([1, 2], 2) == (1, 2)
assert merge_dicts([{"a": 1}, {"b": 2}, {"a": 1}]) == {"a": 1, "b": 2}
assert partition(range(5), lambda x: x > 2) == ([3, 4], [0, 1, 2])
assert ceildiv(7, 2) == 4 and ceildiv(-7, 2) == -3 and round_up(13, 8) == 16
assert get_child({"a": [{"b": 5}]}, "a.0.b") == 5 and unwrap(3) == 3
checked = 13
