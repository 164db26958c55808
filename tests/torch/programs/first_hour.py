"""What one types in the first hour: texts, indices, dtypes, errors, modules, files."""

import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_printoptions(precision=4, sci_mode=False)
rng = np.random.default_rng(9)


def T(*s):
    return torch.tensor(rng.normal(size=s).astype("f"))


print(torch.tensor([[1.0, 2.0], [3.0, 4.5]]))
print(torch.arange(5))
print(torch.tensor(3.5))
print(torch.zeros(2, 0))
print(torch.tensor([True, False]))
print(torch.tensor([1.5, float("nan"), float("inf")]))
x = T(3, 4)
print(
    x.size(),
    x.size(-1),
    x.dim(),
    x.numel(),
    x.element_size(),
    x.stride(),
    x.is_contiguous(),
    x.t().is_contiguous(),
    x.dtype,
    x.device,
    x.layout,
    x.requires_grad,
    x.is_leaf,
    x.data_ptr() == x.view(-1).data_ptr(),
)
print(
    x[0].shape,
    x[..., 0].shape,
    x[:, None].shape,
    x[x > 0].numel(),
    x[[0, 2]].shape,
    x[:, [1, 3]].shape,
    x[torch.tensor([True, False, True])].shape,
    x[-1, -2].item() == x[2, 2].item(),
    x[::2, 1:].shape,
)
y = x.clone()
y += 1
y *= 2
y -= x
y /= 3
y **= 2
print(round(y.sum().item(), 4))
y[y > 2] = 0
y[0] = torch.arange(4.0)
y[:, 1].zero_()
print(round(y.sum().item(), 4))
print(
    torch.where(x > 0, x, torch.zeros_like(x)).sum().item().__round__(4),
    torch.clamp(x, min=-0.5, max=0.5).sum().item().__round__(4),
    x.clamp_min(0).sum().item().__round__(4),
)
print(
    torch.full((2,), 7),
    torch.full_like(x, 2).dtype,
    torch.empty(2, 3).shape,
    torch.eye(2),
    torch.linspace(0, 1, 5),
    torch.logspace(0, 2, 3),
    torch.ones(2, dtype=torch.int16).dtype,
    torch.randn(2, 3).shape,
    torch.randint(0, 5, (2,)).dtype,
    torch.randperm(5).sort().values,
)
print(
    torch.add(torch.tensor([1, 2]), torch.tensor([0.5, 0.5]), alpha=2),
    torch.tensor([1, 2]) / 2,
    torch.tensor([7, -7]) // 2,
    torch.tensor([7, -7]) % 3,
    torch.div(torch.tensor([7.0, -7.0]), 2, rounding_mode="trunc"),
    torch.fmod(torch.tensor([-7.0]), 3),
    torch.remainder(torch.tensor([-7.0]), 3),
)
print(
    torch.result_type(torch.tensor([1]), 1.0),
    torch.promote_types(torch.int8, torch.uint8),
    torch.can_cast(torch.float, torch.int),
    torch.finfo(torch.float16).max,
    torch.iinfo(torch.int32).min,
    torch.get_default_dtype(),
    torch.is_tensor(x),
    torch.is_floating_point(x),
)
print(
    torch.std_mean(x, dim=1)[0].shape,
    torch.var_mean(x)[1].item().__round__(4),
    torch.aminmax(x).max.item().__round__(4),
    torch.median(x).item().__round__(4),
    torch.quantile(x, 0.3).item().__round__(4),
    torch.mode(torch.tensor([1, 2, 2, 3])).values.item(),
    x.argsort(dim=1)[0].tolist(),
    torch.count_nonzero(x > 0).item(),
)
a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
try:
    a += 1
except RuntimeError:
    print("RuntimeError", "")
try:
    torch.zeros(2, 3) @ torch.zeros(2, 3)
except RuntimeError:
    print("RuntimeError")
try:
    torch.zeros(2, 3).view(4)
except RuntimeError:
    print("RuntimeError")
try:
    torch.zeros(2)[5]
except IndexError:
    print("IndexError")
try:
    torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)])
except RuntimeError:
    print("RuntimeError")
b = (a**2).sum()
b.backward()
b2 = (a**3).sum()
b2.backward()
print(a.grad)
a.grad.zero_()
a.grad = None
with torch.no_grad():
    a.sub_(0.1 * torch.ones(3))
    print(a, a.requires_grad, (a * 2).requires_grad)
with torch.set_grad_enabled(False):
    print((a * 2).requires_grad)
print((a * 2).grad_fn is not None, a.grad_fn, a.detach().requires_grad, torch.is_grad_enabled())
buf = io.BytesIO()
torch.save({"a": a.detach(), "n": 3, "l": [x]}, buf)
buf.seek(0)
o = torch.load(buf)
print(o["a"], o["n"], torch.equal(o["l"][0], x))
m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
print(m)
print(m.state_dict().keys())
print(
    [type(c).__name__ for c in m.children()],
    len(list(m.modules())),
    m[0].in_features,
    m[1].training,
)
m.eval()
m.half()
print(m[0].weight.dtype)
m.float()
m.requires_grad_(False)
print(any(p.requires_grad for p in m.parameters()))
m.double()
print(next(m.parameters()).dtype)
m.to(torch.float32)
res = m.load_state_dict({k: v for k, v in m.state_dict().items() if "bias" not in k}, strict=False)
print(res.missing_keys, res.unexpected_keys)
try:
    m.load_state_dict({"x": a})
except RuntimeError:
    print("RuntimeError")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))
        self.l = nn.ParameterList([nn.Parameter(torch.ones(1))])
        self.register_parameter("q", None)
        self.register_buffer("b", torch.ones(1), persistent=False)
        self.add_module("act", nn.ReLU())

    def extra_repr(self):
        return "k=1"


n = Net()
print(
    n,
    dict(n.named_buffers()).keys(),
    n.state_dict().keys(),
    hasattr(n, "zz"),
    n.get_submodule("act"),
)
print(
    F.pad(x, (1, 2), value=9).shape,
    F.pad(x[None, None], (1, 1, 1, 1), mode="reflect")[0, 0, 0, 0].item() == x[1, 1].item(),
    F.interpolate(x[None, None], scale_factor=2, mode="bilinear", align_corners=False)
    .sum()
    .item()
    .__round__(3),
    F.unfold(x[None, None], 2).shape,
    F.cosine_similarity(x[0], x[1], dim=0).item().__round__(4),
    F.normalize(x, dim=1).norm(dim=1),
)
print(
    torch.stack([x, x]).shape,
    torch.vstack([x, x]).shape,
    torch.hstack([x, x]).shape,
    torch.dstack([x, x]).shape,
    [t.shape for t in torch.tensor_split(x, 3, dim=1)],
    torch.unbind(x)[0].shape,
    torch.movedim(x, 0, 1).shape,
    x.unsqueeze(0).squeeze().shape,
    torch.tile(x, (2, 1)).shape,
    torch.broadcast_to(x[0], (3, 4)).shape,
    x.permute(1, 0).shape,
    torch.swapaxes(x, 0, 1).shape,
    torch.rot90(x).shape,
    x.expand(2, 3, 4).shape,
    torch.atleast_2d(x[0]).shape,
    torch.broadcast_shapes((3, 1), (1, 4)),
    torch.cartesian_prod(torch.arange(2), torch.arange(2)).tolist(),
    torch.combinations(torch.arange(3)).tolist(),
    torch.block_diag(torch.ones(1, 1), torch.ones(2, 2)).shape,
)
print(
    torch.searchsorted(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2.0, 3.0])),
    torch.isin(torch.tensor([1, 2, 3]), torch.tensor([2])),
    torch.unique_consecutive(torch.tensor([1, 1, 2])),
    torch.logical_xor(torch.tensor([True]), torch.tensor([True])),
    torch.bitwise_and(torch.tensor(6), 3),
    torch.tensor(5).bitwise_not(),
    torch.lerp(torch.zeros(2), torch.ones(2), 0.3),
    torch.frac(torch.tensor([1.5])),
    torch.nan_to_num(torch.tensor([float("nan")])),
    torch.hypot(torch.tensor(3.0), torch.tensor(4.0)),
    torch.polygamma(1, torch.tensor(2.0)),
    torch.special.expit(torch.tensor(0.0)),
    torch.sinc(torch.tensor(0.5)),
    torch.heaviside(torch.tensor([0.0]), torch.tensor([0.5])),
    torch.gcd(torch.tensor(12), torch.tensor(18)),
)
for step, (q, z) in enumerate(zip(x, x.unbind(0))):
    assert torch.equal(q, z)
print(
    float(x[0, 0]) == x[0, 0].item(),
    int(torch.tensor(3.7)),
    bool(torch.tensor(1)),
    len(x),
    list(torch.arange(3)),
    torch.arange(3).tolist(),
    x.tolist()[0][0] == x[0, 0].item(),
    np.asarray(x).shape,
    torch.from_numpy(np.ones(2)).dtype,
    torch.as_tensor([1, 2]).dtype,
    f"{torch.tensor(2.5):.2f}",
    x.numpy().dtype,
    torch.tensor(2) in torch.tensor([1, 2]),
)
