"""Idioms of dtypes, devices, defaults, printing, seeds, comparisons, and shapes of small scripts."""

import copy
import itertools
import math
import operator
import pickle
import sys
from functools import reduce

import numpy as np
import torch

print(torch.get_default_dtype())
torch.set_default_dtype(torch.float64)
a = torch.tensor([1.0, 2.0])
print(
    a.dtype,
    torch.zeros(2).dtype,
    torch.arange(3).dtype,
    torch.arange(0, 1, 0.5).dtype,
    torch.nn.Linear(2, 2).weight.dtype,
    torch.tensor(3).dtype,
    (torch.tensor([1, 2]) / 2).dtype,
    torch.linspace(0, 1, 3).dtype,
)
torch.set_default_dtype(torch.float32)
device = torch.device(
    "cuda:0" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
)
print(
    device,
    device.type,
    device.index,
    device == torch.device("cpu"),
    repr(device),
    torch.ones(1, device=device).device,
    torch.ones(1).to(device).is_cuda,
)
x = torch.arange(6, dtype=torch.int32, device="cpu").reshape(2, 3)
for t in (
    x.float(),
    x.double(),
    x.half(),
    x.bfloat16(),
    x.long(),
    x.short(),
    x.char(),
    x.byte(),
    x.bool(),
    x.to(torch.float16),
    x.type(torch.float64),
    x.type_as(a),
    x.to(a),
):
    print(t.dtype, t.element_size(), t.type(), t.is_floating_point(), end="; ")
print()
for p, q in itertools.product(
    [torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.bool], repeat=2
):
    print(
        (torch.ones(1, dtype=p) + torch.ones(1, dtype=q)).dtype,
        torch.promote_types(p, q),
        torch.result_type(torch.ones(1, dtype=p), torch.tensor(1, dtype=q)),
        end="; ",
    )
print()
print(
    (x + 1.5).dtype,
    (x * True).dtype,
    (x / 2).dtype,
    (x // 2).dtype,
    (x**2).dtype,
    (x > 1).dtype,
    x.sum().dtype,
    x.float().sum().dtype,
    x.bool().sum().dtype,
    x.cumsum(0).dtype,
    x.prod().dtype,
)
print(
    torch.iinfo(torch.int16).max,
    torch.finfo(torch.float16).eps,
    torch.finfo(torch.float32).tiny,
    torch.finfo(torch.bfloat16).max,
    torch.finfo().bits,
    torch.iinfo(torch.uint8),
)
print(
    torch.tensor([1, 2.5]),
    torch.tensor([True, 2]),
    torch.tensor([[1], [2]]),
    torch.tensor(()),
    torch.tensor([]).dtype,
    torch.empty(0, 3).shape,
    torch.tensor(np.float32(3)),
    torch.tensor(np.arange(3)),
)
print(
    torch.as_tensor([1, 2]),
    torch.from_numpy(np.ones((2, 2), np.int16)),
    torch.asarray(3.5),
    torch.scalar_tensor(2),
    torch.full((2,), 7),
    torch.full((2,), 7.0),
    torch.full((1,), True),
)
print(
    x.size(),
    x.shape,
    x.size(0),
    x.dim(),
    x.ndim,
    x.numel(),
    x.nelement(),
    len(x),
    x.stride(),
    x.is_contiguous(),
    x.t().is_contiguous(),
    x.element_size() * x.nelement(),
    x.shape[-1],
    *x.shape,
    list(x.shape),
    x.shape == (2, 3),
    x.shape + (1,),
    x.shape[:1],
    torch.Size([2, 3]).numel(),
)
print(
    x.t().contiguous().view(-1),
    x.reshape(-1, 2),
    x.view(3, 2),
    x.flatten(),
    x.ravel(),
    x.unsqueeze(-1).shape,
    x[None, ..., None].shape,
    x.view(1, 2, 3).squeeze(0).shape,
    x.expand(4, 2, 3).shape,
    x.repeat(2, 1).shape,
    x.permute(1, 0).shape,
    x.T.shape,
    x.mT.shape,
    x.unflatten(1, (3, 1)).shape,
    x.movedim(0, 1).shape,
)
b, c = torch.chunk(torch.arange(5), 2), torch.split(torch.arange(5), [1, 4])
print(
    b,
    c,
    torch.stack([x, x]).shape,
    torch.cat([x, x], -1).shape,
    torch.hstack([x, x]).shape,
    torch.vstack([x, x]).shape,
    torch.dstack([x, x]).shape,
    x.unbind(1),
    torch.tile(x, (1, 2)).shape,
    torch.meshgrid(torch.arange(2), torch.arange(3), indexing="xy")[0].shape,
)
print(
    bool(torch.tensor(1)),
    int(torch.tensor(2.7)),
    float(torch.tensor(3)),
    torch.tensor([4]).item(),
    torch.tensor([[1, 2], [3, 4]]).tolist(),
    list(torch.arange(3)),
    [int(v) for v in torch.arange(2)],
    range(10)[torch.tensor(3)],
    "abc"[torch.tensor(1)],
    math.sqrt(torch.tensor(4.0)),
    [1, 2, 3][torch.tensor(2)],
    round(torch.tensor(2.567).item(), 2),
    f"{torch.tensor(3.14159):.2f}",
    f"{torch.tensor(2.0):>8.3f}|{torch.tensor(1)}",
    "%d %s" % (torch.tensor(5), torch.tensor([1])),
    np.sqrt(torch.tensor([4.0])),
    np.asarray(torch.ones(2)),
    sum(torch.arange(4)),
    max(torch.tensor([3, 9, 2])),
    sorted(torch.tensor([3, 1, 2])),
    torch.tensor(2) in torch.arange(3),
    5 in torch.arange(3),
)
try:
    bool(torch.ones(2))
except RuntimeError as e:
    print("ambiguous" in str(e))
for bad in (
    lambda: torch.ones(2) + torch.ones(3),
    lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    lambda: torch.ones(2).item(),
    lambda: torch.arange(3)[5],
    lambda: torch.ones(2).view(3),
    lambda: torch.tensor([[1], [2, 3]]),
    lambda: torch.cat([torch.ones(2), torch.ones(2, 2)]),
    lambda: torch.ones(2).long() @ torch.ones(2),
    lambda: torch.zeros(2)["a"],
    lambda: torch.ones(2).sum(3),
    lambda: torch.stack([]),
    lambda: torch.ones(2, requires_grad=True).numpy(),
    lambda: torch.ones(1, device="nowhere"),
    lambda: torch.tensor(["a"]),
    lambda: torch.nn.Linear(2, 3)(torch.ones(4)),
    lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 5])),
    lambda: torch.ones(2).nothing,
    lambda: torch.ones(2, 2).expand(3, 3),
    lambda: torch.linalg.inv(torch.zeros(2, 2)),
    lambda: torch.randint(5, 3, (2,)),
    lambda: torch.arange(3, 0),
    lambda: torch.ones(2).backward(),
    lambda: torch.ones(2, 3).unsqueeze(5),
    lambda: torch.nn.Conv2d(1, 2, 3)(torch.ones(1, 3, 5, 5)),
    lambda: torch.bincount(torch.tensor([-1])),
    lambda: torch.ones(2).index_select(0, torch.tensor([5])),
    lambda: torch.one_hot(3),
    lambda: torch.nn.Embedding(3, 2)(torch.tensor([3])),
    lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 1),
):
    try:
        bad()
        print("passed")
    except Exception as e:
        print(len(str(e)) > 5, end=" ")
print()
print(
    torch.equal(x, x.clone()),
    torch.allclose(a, a + 1e-9),
    (x == x).all(),
    torch.isclose(a, a + 1e-3),
    x.eq(2).any(),
    torch.is_tensor(x),
    isinstance(x, torch.Tensor),
    torch.is_floating_point(x),
    x is x.to("cpu"),
    x.to(torch.int32) is x,
    x.clone() is x,
    x.detach().data_ptr() == x.data_ptr(),
    x.data is x,
    id(x) == id(x),
    hash(x) == hash(x),
    x.__class__.__name__,
)
y = copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))
print([torch.equal(v, x) for v in y], y[1].data_ptr() == x.data_ptr())
torch.manual_seed(3)
s = torch.get_rng_state()
r1 = torch.rand(3)
torch.set_rng_state(s)
print(
    torch.equal(r1, torch.rand(3)),
    torch.initial_seed(),
    torch.rand(2, 2).shape,
    torch.randn(2).dtype,
    torch.randint(0, 3, (4,)).dtype,
    torch.randperm(5).sort().values,
    torch.bernoulli(torch.tensor([0.0, 1.0])),
    torch.normal(0.0, 0.0, (2,)),
    torch.rand_like(a).dtype,
    torch.empty_like(x, dtype=torch.float).shape,
    0 <= torch.rand(100).min() and torch.rand(100).max() < 1,
)
torch.set_printoptions(precision=2, threshold=5, edgeitems=1, linewidth=60)
print(
    torch.arange(10.0) / 3,
    torch.tensor([1e-8, 1.0]),
    torch.tensor([1e10, 1.0]),
    torch.tensor([math.nan, math.inf]),
    torch.tensor(1.23456),
    torch.zeros(3, 4),
)
torch.set_printoptions(profile="default")
print(
    torch.tensor([1.0, 2.5]),
    torch.tensor([1.0, 2.0]),
    torch.tensor([0.0001]),
    torch.tensor([[True]]),
    torch.ones(2, dtype=torch.float64),
    torch.ones(2, requires_grad=True) * 2,
    torch.nn.Parameter(torch.ones(1)),
    torch.tensor(5, dtype=torch.int8),
    torch.ones(2, dtype=torch.half),
    torch.tensor([1 + 2j]),
    torch.Tensor([1, 2]),
    torch.LongTensor([3]),
    torch.BoolTensor([1]),
    torch.FloatTensor(2).shape,
)
print(
    reduce(operator.mul, x.shape, 1),
    sys.getsizeof(torch.ones(1)) > 0,
    torch.__version__ > "1.0",
    torch.get_num_threads() > 0,
    torch.is_grad_enabled(),
    torch.pi == math.pi,
    torch.inf,
    -torch.inf,
    torch.nan,
    torch.e,
)
