"""Indices of every kind, read and written, scatter and gather, views."""

import torch

x = torch.arange(24).reshape(2, 3, 4)
print(x[0], x[:, 1], x[..., -1], x[1, 2, 3], sep="\n")
print(
    x[None].shape,
    x[:, None, :, None].shape,
    x[..., None].shape,
    x[0:1, ::2].shape,
    x[:, :, 1:3].shape,
)
print(x[:, [0, 2]], x[[0, 1], [1, 2]], x[torch.tensor([1, 0])], sep="\n")
print(x[x > 20], x[x % 2 == 0].sum())
print(x[torch.tensor([True, False])])
print(x[:, torch.tensor([True, False, True])].shape)
print(x[0, :, torch.tensor([0, 1])], x[torch.tensor([0]), :, torch.tensor([1])])
print(x[-1, -1, -1], x[:, -2:])
y = x.clone()
y[0, 0] = -1
print(y[0])
y[:, 1, :] = torch.arange(4)
print(y[:, 1])
y[y > 15] = 0
print(y)
y[[0, 1], [0, 0]] = torch.tensor([[9, 9, 9, 9], [8, 8, 8, 8]])
print(y[:, 0])
y[..., ::2] += 100
print(y)
y[0][1][2] = 5
print(y[0, 1, 2])
z = torch.zeros(5)
z[torch.tensor([0, 0, 1])] += 1
print(z)
z.index_put_((torch.tensor([0, 0, 1]),), torch.tensor([1.0, 1.0, 1.0]), accumulate=True)
print(z)
z[1:4].fill_(7)
print(z)
z[::2] *= -1
print(z)
z[-1:] = torch.tensor([3.5])
print(z)
m = torch.zeros(3, 3)
m[range(3), range(3)] = 1.0
print(m)
m.fill_diagonal_(2)
print(m)
m[m == 0] = torch.arange(6.0)
print(m)
m[:, 0], m[0, :] = 5, 6
print(m)
print(torch.take(m, torch.tensor([0, 4])), torch.take_along_dim(m, m.argsort(dim=1), dim=1))
print(m.gather(0, torch.tensor([[0, 1, 2]])), m.index_select(1, torch.tensor([2, 0])))
a = torch.zeros(2, 4).scatter_(
    1, torch.tensor([[0, 1], [2, 3]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
)
print(a)
a.scatter_(0, torch.tensor([[1, 1, 1, 1]]), 9.0)
print(a)
a.scatter_add_(1, torch.tensor([[0, 0], [1, 1]]), torch.ones(2, 2))
print(a)
print(
    torch.zeros(3).scatter_reduce(
        0, torch.tensor([0, 0, 2]), torch.tensor([1.0, 5.0, 2.0]), reduce="amax", include_self=False
    )
)
print(
    a.masked_fill(a > 5, -1),
    a.masked_select(a > 5),
    a.nonzero(),
    a.nonzero(as_tuple=True),
    sep="\n",
)
print(torch.where(a > 5), torch.where(a > 5, a, 0.0), torch.argwhere(a == 9))
print(
    a.index_add(0, torch.tensor([0, 1]), torch.ones(2, 4), alpha=2),
    a.index_fill(1, torch.tensor([0]), -3),
    a.index_copy(1, torch.tensor([1]), torch.zeros(2, 1)),
)
print(
    a.narrow(1, 1, 2),
    a.select(0, 1),
    a.unfold(1, 2, 1).shape,
    a.unbind(1)[0],
    a.movedim(0, 1).shape,
)
print(
    [t.tolist() for t in a.split(3, dim=1)],
    [t.shape for t in a.chunk(3, 1)],
    [t.shape for t in torch.tensor_split(torch.arange(7), 3)],
)
v = torch.arange(6).view(2, 3)
v2 = v.view(3, 2)
v2[0, 0] = 50
print(v)
t = v.t()
t[0, 1] = 60
print(v)
print(
    v.is_contiguous(),
    t.is_contiguous(),
    t.contiguous().view(-1),
    v.stride(),
    t.stride(),
    v.storage_offset(),
    v[1].storage_offset(),
)
e = torch.ones(3, 1).expand(3, 4)
print(e.stride(), e.shape, e.is_contiguous())
w = torch.arange(10.0)
w[2:5], w[7:] = w[5:8].clone(), 0
print(w)
w[w.argmax()] = -1
print(w)
w[[1, 3]] = w[[3, 1]]
print(w)
k = torch.tensor([[1, 2], [3, 4]])
k[0], k[1] = k[1].clone(), k[0].clone()
print(k)
print(
    k.flip(0),
    k.roll(1),
    k.rot90(),
    k.repeat(1, 2),
    k.tile(2),
    k.repeat_interleave(2, dim=0),
    sep="\n",
)
print(
    k.tril(), k.triu(1), torch.diag(torch.tensor([1, 2])), k.diagonal(), torch.block_diag(k, k[:1])
)
i = torch.tensor(1)
print(k[i], k[i, i], x[:, i].shape, k[i:].shape, [10, 20, 30][i])
for row in k:
    print(row)
first, second = k
print(first, second, list(map(int, k.flatten())))
print(
    x.size(), x.size(0), x.size(-1), x.dim(), x.numel(), len(x), x.shape[1:], x.nelement(), x.ndim
)
b = torch.tensor([[True, False], [False, True]])
print(k[b], ~b, b & True, b | b.t(), b ^ b, b.any(), b.all(dim=0), b.sum())
n = torch.arange(4.0, requires_grad=True)
o = n * 1
o[1] = 10
o[2:] *= 3
o.sum().backward()
print(n.grad)
print(
    torch.arange(12).reshape(3, 4)[1:, [1, 3]], torch.arange(12).reshape(3, 4)[[[0], [2]], [1, 3]]
)
u = torch.zeros(2, 3, 4)
u[:, torch.tensor([0, 2]), 1:3] = 1
print(u[0])
u[0, :, [0, 3]] = torch.tensor([7.0, 8.0])
print(u[0])
u[..., 0] = torch.tensor([[1.0], [2.0]])
print(u[:, :, 0])
u[1] = u[0]
print(torch.equal(u[0], u[1]))
print(
    torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([0, 3, 6])),
    torch.bucketize(torch.tensor([0.5, 2.5]), torch.tensor([1.0, 2.0, 3.0])),
    torch.isin(k, torch.tensor([1, 4])),
)
