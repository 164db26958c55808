"""Broadcasting, gather and scatter, masks, sorting, einsum: functions of tensors."""

import numpy as np
import torch

rng = np.random.default_rng(29)
a = torch.tensor(rng.normal(size=(4, 5)), dtype=torch.float32)
index = torch.tensor(rng.integers(0, 5, (4, 2)))
print(a.gather(1, index).tolist())
print(torch.zeros(4, 5).scatter_(1, index, 1.0).tolist())
print(torch.zeros(5).scatter_add_(0, index[:, 0], torch.ones(4)).tolist())
print(a.masked_fill(a < 0, 0.0).sum().item(), a.masked_select(a > 1).tolist())
values, order = torch.sort(a, dim=1, descending=True)
print(values[0].tolist(), order[0].tolist())
print(torch.topk(a, 2, dim=0).values.tolist(), a.kthvalue(2, dim=1).indices.tolist())
print(torch.einsum("ij,kj->ik", a, a)[0].tolist(), torch.einsum("ii->", a[:, :4]).item())
print(torch.einsum("bi,bj->bij", a[:2], a[2:]).sum((1, 2)).tolist())
print(torch.nonzero(a > 1).tolist(), [t.tolist() for t in torch.where(a > 1)])
print(a.roll(1, dims=1)[0].tolist(), torch.flip(a, dims=[0])[0].tolist())
print(torch.triu(torch.ones(3, 3), diagonal=1).tolist(), torch.tril_indices(3, 3).tolist())
print(a.unfold(1, 3, 2).shape, a.repeat(2, 1).shape, a.repeat_interleave(2, dim=0).shape)
print(torch.bucketize(torch.tensor([0.1, 2.5]), torch.tensor([0.0, 1.0, 2.0])).tolist())
print(torch.unique(index, return_counts=True)[0].tolist(), torch.bincount(index.flatten()).tolist())
print([c.shape for c in torch.chunk(a, 2, dim=1)], [s.shape for s in a.split([1, 4], dim=1)])
print(torch.cdist(a[:2], a[2:]).tolist(), torch.cross(a[0, :3], a[1, :3], dim=0).tolist())
print(torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")[1].tolist())
print(torch.cummax(a[0], dim=0).indices.tolist(), torch.logcumsumexp(a[0], 0)[-1].item())
print(torch.logsumexp(a, dim=1).tolist(), a.norm(p=1).item(), a.norm(dim=1).tolist())
b = a.clone()
b[1:3, ::2] += 10
b[torch.tensor([0, 3]), torch.tensor([1, 4])] = -1
b[b > 9.5] = 0
print(b.sum().item(), b[0, 1].item(), a.min(dim=0).indices.tolist())
print((a[:, None, :] - a[None]).abs().sum(-1).max().item(), torch.outer(a[0], a[1]).trace().item())
print(torch.allclose(a, a + 1e-9), torch.equal(a, b), torch.isclose(a, b).sum().item())
print(torch.histc(a, bins=4, min=-2, max=2).tolist(), torch.diff(a[0]).tolist())
print(torch.nn.functional.one_hot(index[:, 0], 5).sum(0).tolist(), a.int()[0].tolist())
