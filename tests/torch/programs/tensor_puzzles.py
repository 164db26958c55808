"""Small problems in tensor code: outer tricks, run lengths, sliding windows, masks, scatter histograms, bit twiddling, meshes, sorting by keys, set operations, morphology, life."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(45)
a = torch.from_numpy(rng.integers(0, 5, 20))
values, inverse, counts = a.unique(return_inverse=True, return_counts=True)
print(values, counts, torch.equal(values[inverse], a))
runs, length = torch.unique_consecutive(torch.tensor([1, 1, 2, 2, 2, 1]), return_counts=True)
print(runs, length, torch.repeat_interleave(runs, length))
x = torch.arange(12.0).reshape(3, 4)
print(
    x.unfold(1, 2, 1).mean(-1),
    x.as_strided((3, 3, 2), (4, 1, 1)).sum(-1),
    F.unfold(x[None, None], 2).shape,
)
print(
    torch.diff(x, dim=1),
    torch.cumsum(x, 0)[-1],
    x.roll((1, -1), (0, 1))[0],
    torch.rot90(x, 1, (0, 1))[0],
    x.flip(1)[:, 0],
)
order = torch.argsort(torch.tensor([3, 1, 2, 1]), stable=True)
print(
    order,
    torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([0, 3, 6]), right=True),
    torch.bucketize(torch.tensor([0.5, 2.5]), torch.tensor([1.0, 2.0])),
)
keys = torch.tensor([[2, 1], [1, 5], [2, 0], [1, 2]])
print(keys[torch.from_numpy(np.lexsort((keys[:, 1].numpy(), keys[:, 0].numpy())))])
print(
    torch.isin(torch.arange(6), torch.tensor([1, 4])),
    torch.tensor([1, 2, 3])[~torch.isin(torch.tensor([1, 2, 3]), torch.tensor([2]))],
)
hist = torch.zeros(5, dtype=torch.long).scatter_add_(0, a, torch.ones_like(a))
print(hist, torch.bincount(a, weights=a.double()), a.float().histc(5, 0, 4))
board = torch.from_numpy(rng.integers(0, 2, (1, 1, 6, 6))).float()
kernel = torch.ones(1, 1, 3, 3)
kernel[0, 0, 1, 1] = 0
for _ in range(3):
    near = F.conv2d(F.pad(board, (1, 1, 1, 1), mode="circular"), kernel)
    board = ((near == 3) | ((board == 1) & (near == 2))).float()
print(
    board.sum().item(),
    F.max_pool2d(board, 3, 1, 1).sum().item(),
    (-F.max_pool2d(-board, 3, 1, 1)).sum().item(),
)
bits = (torch.tensor([5, 9, 14]).unsqueeze(-1) >> torch.arange(4)) & 1
print(
    bits,
    (bits << torch.arange(4)).sum(-1),
    torch.tensor([6]) ^ 3,
    ~torch.tensor([0, -1]),
    torch.bitwise_left_shift(torch.tensor(1), 5),
)
gy, gx = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
print(
    torch.stack([gy, gx], -1)[2, 3],
    torch.cartesian_prod(torch.arange(2), torch.arange(2)),
    torch.combinations(torch.arange(3)),
)
m = torch.tril(torch.ones(4, 4, dtype=torch.bool))
print(
    m.nonzero()[-1],
    torch.where(m, 1, 0).sum(),
    m.long().argmax(0),
    torch.triu_indices(3, 3, 1),
    torch.masked_select(x[:3, :3], m[:3, :3]),
)
print(
    torch.einsum("ij,ij->i", x, x),
    torch.einsum("bij,bjk->bik", x[None], x.t()[None])[0, 0],
    torch.einsum("...i->...", x),
    torch.einsum("ii", x[:, :3]),
)
z = torch.zeros(3, 4)
z[[0, 2], [1, 3]] = torch.tensor([5.0, 7.0])
z[z == 5] += 1
z[..., -1].add_(1)
z.index_put_(
    (torch.tensor([1, 1]), torch.tensor([0, 0])), torch.tensor([2.0, 3.0]), accumulate=True
)
print(z, z.max(), z.argmax(), torch.unravel_index(z.argmax(), z.shape), z.topk(1).indices[1])
print(
    torch.lerp(x[0], x[1], 0.25),
    torch.addcmul(x[0], x[1], x[2], value=0.1),
    torch.clamp(x, min=x.mean(), max=torch.tensor(9.0))[0],
    x.fmod(3)[2],
    torch.remainder(-x, 3)[0],
    x // 5,
)
print(
    x.view(-1, 2).mean(1),
    x.reshape(2, 6).t().contiguous().view(-1)[:4],
    x.unflatten(1, (2, -1)).shape,
    x.movedim(0, 1).shape,
    torch.tensor_split(x, (1, 3), dim=1)[1],
)
print(
    torch.logsumexp(x, 1),
    x.softmax(0)[:, 0],
    F.one_hot(a[:3], 5),
    F.normalize(x, dim=1).norm(dim=1),
    torch.cdist(x[:2], x[1:]).diagonal(),
    x.std(1, correction=0),
    x.median(1).values,
)
grid = F.interpolate(x[None, None], scale_factor=2, mode="nearest")[0, 0]
print(
    grid[3:5, 3:5],
    F.pixel_shuffle(torch.arange(8.0).view(1, 8, 1, 1), 2).flatten(),
    F.adaptive_avg_pool1d(x, 2),
    F.avg_pool2d(x[None], (1, 2))[0],
)
parity = torch.tensor([True, False, True])
print(
    parity.cumsum(0) % 2 == 1,
    parity.any(),
    parity.logical_xor(torch.tensor([True, True, False])),
    parity.float().mean(),
    torch.where(parity)[0],
)
print(
    torch.polyval(torch.ones(2), torch.ones(2))
    if hasattr(torch, "polyval")
    else torch.vander(torch.tensor([1.0, 2.0, 3.0])),
    torch.trapz(x[0], dx=0.5),
    torch.cross(torch.eye(3)[0], torch.eye(3)[1], dim=0),
    torch.heaviside(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor(0.5)),
)
print(
    torch.nan_to_num(torch.tensor([float("nan"), float("inf")]), posinf=9.0),
    torch.frexp(torch.tensor([8.0])).exponent,
    torch.gcd(torch.tensor(12), torch.tensor(18)),
    torch.floor_divide(torch.tensor(-7), 2),
    torch.div(torch.tensor(-7.0), 2, rounding_mode="trunc"),
    torch.copysign(torch.tensor(3.0), torch.tensor(-0.0)),
)
