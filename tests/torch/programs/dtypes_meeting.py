"""What dtype any two of them meet in, and numbers, and reductions."""

import itertools

import torch

kinds = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
for a, b in itertools.combinations_with_replacement(kinds, 2):
    x, y = torch.ones(2, dtype=a), torch.ones(2, dtype=b)
    print(
        a,
        b,
        torch.promote_types(a, b),
        (x + y).dtype,
        (x * torch.tensor(1, dtype=b)).dtype,
        (x / y).dtype,
        (x > y).dtype,
        torch.result_type(x, torch.tensor(2, dtype=b)),
    )
for d in kinds:
    x = torch.tensor([1, 0, 3], dtype=d)
    print(
        d,
        (x + 1).dtype,
        (x + 1.5).dtype,
        (x * True).dtype,
        (2**x).dtype,
        (x**2).dtype if d is not torch.bool else "",
        x.sum().dtype,
        x.prod().dtype,
        x.cumsum(0).dtype,
        torch.sqrt(x).dtype,
        torch.exp(x).dtype,
        x.max().dtype,
        (x // 2).dtype,
        (x % 2).dtype,
        (1 / x).dtype,
        torch.where(x > 0, x, 0).dtype,
        torch.where(x > 0, x, 0.5).dtype,
        x.is_floating_point(),
        d.is_floating_point,
        d.is_complex,
        d.itemsize,
        d.is_signed,
        x.element_size(),
    )
print(
    torch.tensor(1).dtype,
    torch.tensor(1.0).dtype,
    torch.tensor(True).dtype,
    torch.tensor([1, 2.0]).dtype,
    torch.tensor([True, 2]).dtype,
    torch.tensor([]).dtype,
)
print(
    torch.arange(3).dtype,
    torch.arange(3.0).dtype,
    torch.arange(0, 1, 0.25),
    torch.linspace(0, 1, 3).dtype,
    torch.full((2,), 3).dtype,
    torch.full((2,), 3.0).dtype,
    torch.full((2,), True).dtype,
)
print(
    torch.zeros(2, dtype=torch.int).dtype,
    torch.ones(2).long().dtype,
    torch.eye(2).dtype,
    torch.randperm(3).dtype,
    torch.randint(3, (2,)).dtype,
    torch.bernoulli(torch.tensor([0.5])).dtype,
)
torch.set_default_dtype(torch.float64)
print(
    torch.tensor(1.0).dtype,
    torch.zeros(1).dtype,
    torch.get_default_dtype(),
    (torch.ones(2, dtype=torch.int) / 2).dtype,
    torch.nn.Linear(1, 1).weight.dtype,
    torch.tensor([1.5]),
)
torch.set_default_dtype(torch.float32)
try:
    torch.set_default_dtype(torch.int32)
except TypeError:
    print("TypeError")
print(
    torch.tensor([1.9, -1.9]).int(),
    torch.tensor([300]).to(torch.uint8),
    torch.tensor([-1]).to(torch.uint8),
    torch.tensor([0.0, 0.1]).bool(),
    torch.tensor([1, 2]).float(),
    torch.tensor([True]).int(),
)
print(
    torch.tensor([1.5]).type(),
    torch.tensor([1]).type(),
    torch.tensor([1.5]).type(torch.IntTensor),
    torch.tensor([1]).type("torch.FloatTensor"),
    torch.tensor([1]).type_as(torch.ones(1)),
)
print(
    torch.finfo(torch.float32),
    torch.finfo(torch.float16).max,
    torch.finfo(torch.bfloat16).eps,
    torch.iinfo(torch.int8),
    torch.finfo(torch.float64).tiny,
)
x = torch.arange(3)
for f in (
    lambda: x.add_(1.5),
    lambda: x.mul_(2.0),
    lambda: x.div_(2),
    lambda: x.float().add_(1),
    lambda: torch.ones(2, dtype=torch.float16).add_(torch.ones(2, dtype=torch.float64)),
):
    try:
        print(f().dtype)
    except RuntimeError:
        print("RuntimeError")
print(
    torch.div(torch.tensor([7, -7]), 2),
    torch.div(torch.tensor([7, -7]), 2, rounding_mode="floor"),
    torch.div(torch.tensor([7, -7]), 2, rounding_mode="trunc"),
    torch.tensor([7, -7]) // 2,
    torch.tensor([7, -7]) % 3,
    torch.fmod(torch.tensor([7, -7]), 3),
    torch.remainder(torch.tensor([7.5, -7.5]), 2),
)
print(
    7 // torch.tensor([2, 3]),
    7 % torch.tensor([2, 4]),
    2 ** torch.tensor([1, 2]),
    2.0 ** torch.tensor([1, -2]),
    torch.tensor([2, 3]) ** 2.0,
    -torch.tensor([1, -2]),
    abs(torch.tensor([-1])),
    +torch.tensor([1]),
    ~torch.tensor([1, 2]),
)
print(
    torch.tensor([5, 6]) & 3,
    torch.tensor([5]) | 2,
    torch.tensor([5]) ^ 1,
    torch.tensor([1]) << 3,
    torch.tensor([16]) >> 2,
)
print(
    torch.can_cast(torch.double, torch.int),
    torch.can_cast(torch.int, torch.double),
    torch.is_tensor(x),
    torch.is_floating_point(x),
)
print(
    torch.tensor(3).item(),
    type(torch.tensor(3).item()),
    type(torch.tensor(3.0).item()),
    type(torch.tensor(True).item()),
    int(torch.tensor([3.7])),
    float(torch.tensor(2)),
    bool(torch.tensor(0)),
    complex(torch.tensor(2.0)),
)
print(
    torch.tensor(2.5).tolist(),
    torch.tensor([[1, 2]]).tolist(),
    torch.ones(1).numpy().dtype,
    torch.ones(2).half().numpy(),
    str(torch.float32),
    repr(torch.int64),
    torch.float is torch.float32,
    torch.long == torch.int64,
)
print(
    torch.sum(torch.tensor([True, True])),
    torch.tensor([1, 2, 3], dtype=torch.uint8).sum(),
    torch.mean(torch.tensor([1, 2], dtype=torch.float16)),
    torch.tensor([1, 2]).sum(dtype=torch.float32),
    torch.arange(4).mean(dtype=torch.float32),
    torch.tensor([1, 2]).cumsum(0, dtype=torch.float64),
)
print(
    torch.cat([torch.ones(1), torch.ones(1, dtype=torch.int64)]).dtype,
    torch.stack([torch.ones(1), torch.ones(1, dtype=torch.float64)]).dtype,
    torch.cat([torch.tensor([True]), torch.tensor([2])]),
)
print(
    torch.maximum(torch.tensor([1]), torch.tensor([2.0])),
    torch.clamp(torch.tensor([1, 5]), max=2.5),
    torch.clamp(torch.tensor([1.0, 5.0]), min=torch.tensor([2, 2])),
    torch.tensor([1, 2]).clamp(0, 1),
    torch.bincount(torch.tensor([0, 1, 1])),
    torch.bincount(torch.tensor([0, 1]), weights=torch.tensor([0.5, 1.0])),
)
print(
    torch.tensor([1.0]).view(torch.int32),
    torch.tensor([1, 2]).double() / 3,
    1e-10 + torch.tensor(1.0, dtype=torch.float64),
    torch.tensor(1e10),
    torch.tensor([1e-5, 1.0]),
    torch.tensor([1e8, 1.0]),
    torch.tensor([float("nan"), float("inf"), -1]),
)
