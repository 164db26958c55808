"""Indexing, scattering, joining, sorting, and numbers of all dtypes."""

import torch

x = torch.arange(24.0).reshape(4, 6)
print(
    x[torch.tensor([[0, 1], [2, 3]])].shape,
    x[:, torch.tensor([5, 0])],
    x[torch.tensor([0, 1]), torch.tensor([2, 3])],
    x[[0, -1]],
    x[..., None].shape,
    x[1:3, [0, 2]],
    x[x % 5 == 0],
)
print(
    torch.gather(x, 1, torch.tensor([[0, 5], [1, 4], [2, 3], [0, 0]])),
    torch.take(x, torch.tensor([0, 23])),
    torch.take_along_dim(x, x.argsort(1, descending=True)[:, :2], 1),
)
z = torch.zeros(3, 5)
z.scatter_(0, torch.tensor([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]]), torch.ones(2, 5) * 7)
print(z)
print(
    torch.zeros(2, 3).scatter(1, torch.tensor([[0], [2]]), 1.5),
    torch.zeros(3).scatter_add(0, torch.tensor([0, 0, 2]), torch.tensor([1.0, 2.0, 3.0])),
    torch.ones(3).scatter_reduce(0, torch.tensor([0, 0, 1]), torch.tensor([2.0, 3.0, 4.0]), "prod"),
    torch.zeros(3).scatter_reduce(
        0, torch.tensor([0, 0, 1]), torch.tensor([2.0, 3.0, 4.0]), "mean", include_self=False
    ),
)
print(
    torch.zeros(3, 2).index_put((torch.tensor([0, 0, 2]),), torch.ones(3, 2), accumulate=True),
    x.index_select(1, torch.tensor([0, 3])),
    x.index_fill(0, torch.tensor([1]), -1)[1],
    x.index_copy(0, torch.tensor([3]), torch.zeros(1, 6))[3],
)
m = x > 11
print(
    x.masked_select(m),
    x.masked_fill(m, 0).sum(),
    torch.where(m, x, -x).sum(1),
    m.nonzero().shape,
    m.nonzero(as_tuple=True)[0],
    m.any(0),
    m.all(1),
    (~m).sum(),
    m & (x < 20) | (x == 0),
)
y = torch.zeros(3, 4)
y.masked_scatter_(torch.eye(3, 4, dtype=torch.bool), torch.tensor([1.0, 2.0, 3.0]))
print(y)
print(
    x.unfold(1, 3, 2).shape,
    x.unfold(1, 3, 2)[0],
    x.narrow(1, 2, 2),
    x.select(0, 1),
    x.diagonal(1),
    x.diag(),
    torch.diag(torch.tensor([1.0, 2.0])),
    torch.diag_embed(torch.ones(2, 2)).shape,
    x.tril(-1)[1],
    x.triu(2)[0],
)
print(
    x.roll(1, 0)[0],
    x.roll((1, 2), (0, 1))[0, 0],
    x.flip(0, 1)[0],
    torch.rot90(x)[0],
    x.T.shape,
    x.movedim(0, 1).shape,
    x.view(2, 2, 6).permute(2, 0, 1).shape,
    x.unflatten(1, (2, 3)).shape,
    x.repeat(1, 2).shape,
    x.repeat_interleave(2, 0).shape,
    x.tile(2).shape,
    torch.repeat_interleave(torch.tensor([1, 2]), torch.tensor([2, 3])),
)
print(
    torch.einsum("ij,kj->ik", x, x)[0],
    torch.einsum("bi,bj->bij", x, x).shape,
    torch.einsum("ii", x[:4, :4]),
    torch.einsum("ij->ji", x).shape,
    torch.einsum("...j,j->...", x, torch.ones(6)),
    torch.einsum("bij,bjk,bkl->bil", torch.ones(2, 2, 3), torch.ones(2, 3, 4), torch.ones(2, 4, 2)),
    torch.einsum("i,j->ij", torch.arange(2.0), torch.arange(3.0)),
    torch.tensordot(x, x, dims=([0, 1], [0, 1])),
    torch.kron(torch.eye(2), torch.ones(1, 2)),
)
print(
    torch.unique(torch.tensor([3, 1, 3, 2]), return_inverse=True, return_counts=True),
    torch.unique_consecutive(torch.tensor([1, 1, 2, 1])),
    torch.bincount(torch.tensor([0, 2, 2])),
    torch.histc(x, 4),
    torch.bucketize(torch.tensor([1.5, 7.0]), torch.tensor([1.0, 2.0, 7.0])),
    torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([3, 4]), right=True),
    torch.isin(torch.tensor([1, 2]), torch.tensor([2])),
)
print(
    x.sort(1, descending=True)[1][0],
    x.argsort(0)[:, 0],
    x.topk(2, largest=False),
    x.kthvalue(3),
    x.median(1),
    torch.median(x),
    x.mode(0),
    x.cummax(0)[1][0],
    x.logcumsumexp(1)[0],
    x.quantile(0.25),
    x.quantile(torch.tensor([0.1, 0.9]), dim=1),
    x.std(0, unbiased=False),
    torch.var_mean(x, 1),
    x.norm(dim=1),
    x.aminmax(),
    x.argmax(),
    x.argmax(1),
    x.min(0),
    x.prod(1)[0],
    x.cumprod(1)[1],
    x.diff()[0],
    torch.cov(x)[0],
    torch.corrcoef(x)[0, 1],
)
print(
    torch.stack([x, x], -1).shape,
    torch.cat([x, x[:1]], 0).shape,
    torch.hstack([x, x]).shape,
    torch.vstack([x[0], x[1]]),
    torch.dstack([x[0], x[1]]).shape,
    x.split([1, 3])[1].shape,
    [c.shape for c in x.chunk(3, 1)],
    torch.tensor_split(x, 3, 1)[0].shape,
    torch.broadcast_tensors(torch.ones(3, 1), torch.ones(4))[0].shape,
    torch.meshgrid(torch.arange(2), torch.arange(3), indexing="xy")[0],
    torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4])),
    torch.combinations(torch.arange(3)),
    torch.block_diag(torch.ones(1, 2), torch.ones(1)),
    torch.tril_indices(2, 3),
    torch.vander(torch.tensor([1.0, 2.0])),
)
print(
    torch.tensor([1, 2]) / 2,
    torch.tensor([5, -5]) // 2,
    torch.tensor([5, -5]) % 3,
    torch.tensor([5.0, -5.0]) % 3,
    torch.fmod(torch.tensor([5.0, -5.0]), 3),
    torch.div(torch.tensor([5, -5]), 2, rounding_mode="trunc"),
    torch.tensor([1, 2]) ** 2,
    2 ** torch.tensor([1.0, 2.0]),
    torch.tensor(7) >> 1,
    torch.tensor(3) & 1,
    ~torch.tensor([True]),
    ~torch.tensor(5),
    -torch.tensor(3),
    abs(torch.tensor(-3)),
    torch.tensor([1.0, 2.0]).pow(-1),
    torch.tensor(2) ** (-1.0),
    torch.bitwise_xor(torch.tensor(5), 3),
    torch.tensor([True]) + torch.tensor([True]),
    torch.tensor([1]) + 1.5,
    torch.tensor([1], dtype=torch.uint8) - 2,
    torch.tensor([200], dtype=torch.uint8) + 100,
    torch.tensor(1) == 1.0,
    torch.tensor([1.0]).half() + torch.tensor([1.0]).double(),
    (torch.ones(1, dtype=torch.half) + torch.tensor(1.0)).dtype,
    torch.result_type(torch.tensor([1]), 1.5),
)
for a in x.split(2):
    print(a.mean(), end=" ")
print()
i, j = torch.where(x > 20)
print(i, j, list(zip(i.tolist(), j.tolist())))
a, b = x[0, :2]
print(
    a,
    b.item(),
    *x[0, :3],
    max(x[0]),
    sum(x[:, 0]),
    sorted(x[0, :3].tolist(), reverse=True),
    len(x),
    x.shape[-1],
    x.size(-1),
    x.nelement(),
    x.dim(),
    3.0 in x,
    [float(v) for v in x[0, :2]],
    int(x[1, 1]),
    x[1, 1] > 3,
    bool(x[1, 1] > 3),
    not x[0, 0],
)
print(
    x.long().tolist()[0],
    x.numpy()[0],
    x.type(),
    x.int().dtype,
    x.bool()[0],
    x.to(torch.int8)[3],
    x.double().dtype,
    x.char().dtype,
    x.new_zeros(2),
    x.new_tensor([1, 2]),
    torch.zeros_like(x, dtype=torch.int)[0],
    torch.full_like(x[0], 3),
    x.element_size(),
    x.stride(),
    x.T.stride(),
    x.is_contiguous(),
    x.T.is_contiguous(),
    x[:, 1].storage_offset(),
    x.data_ptr() == x.view(-1).data_ptr(),
    x.itemsize,
    x.nbytes,
)
