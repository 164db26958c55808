"""Attention over the edges of a graph, with scatter, index_add and a softmax by segments."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(53)
N, E = 12, 40
edges = torch.from_numpy(rng.integers(0, N, (2, E)))
edges = torch.unique(edges, dim=1)
src, dst = edges
loops = torch.arange(N)
src, dst = torch.cat([src, loops]), torch.cat([dst, loops])


def segment_softmax(scores, index, n):
    largest = torch.full((n, scores.size(1)), float("-inf"))
    largest = largest.scatter_reduce(
        0, index[:, None].expand_as(scores), scores, reduce="amax", include_self=False
    )
    weights = (scores - largest[index]).exp()
    total = torch.zeros(n, scores.size(1)).index_add_(0, index, weights)
    return weights / (total[index] + 1e-16)


class GAT(nn.Module):
    def __init__(self, n_in, n_out, heads):
        super().__init__()
        self.heads, self.n_out = heads, n_out
        self.lin = nn.Linear(n_in, heads * n_out, bias=False)
        self.att = nn.Parameter(torch.empty(2, heads, n_out))
        self.bias = nn.Parameter(torch.zeros(heads * n_out))

    def forward(self, x):
        h = self.lin(x).view(-1, self.heads, self.n_out)
        a_src = (h * self.att[0]).sum(-1)
        a_dst = (h * self.att[1]).sum(-1)
        alpha = segment_softmax(F.leaky_relu(a_src[src] + a_dst[dst], 0.2), dst, N)
        message = h[src] * alpha.unsqueeze(-1)
        out = torch.zeros_like(h).scatter_add(0, dst[:, None, None].expand_as(message), message)
        return out.flatten(1) + self.bias, alpha


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GAT(5, 4, 2), GAT(8, 3, 1)

    def forward(self, x):
        x, _ = self.one(x)
        return self.two(F.elu(x))


net = Net()
for p in net.parameters():
    nn.init.constant_(p, 0.0)
    p.data.add_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape)).astype(np.float32)))
x = torch.from_numpy(rng.standard_normal((N, 5)).astype(np.float32))
y = torch.from_numpy(rng.integers(0, 3, N))
train = torch.zeros(N, dtype=torch.bool)
train[rng.permutation(N)[:8]] = True
optimizer = torch.optim.Adam(net.parameters(), lr=0.02, weight_decay=5e-3)
for epoch in range(6):
    logits, alpha = net(x)
    loss = F.cross_entropy(logits[train], y[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = (logits.argmax(1)[~train] == y[~train]).sum().item()
    print(f"{epoch} {loss:.4f} {right}/{(~train).sum()}")
degree = torch.zeros(N, dtype=torch.long).scatter_add_(0, dst, torch.ones_like(dst))
print(degree.tolist(), torch.zeros(N).index_add(0, dst, alpha.detach()[:, 0]))
dense = torch.zeros(N, N).index_put_((src, dst), torch.tensor(1.0), accumulate=True)
print(dense.nonzero().shape, torch.triu(dense).sum(), dense.count_nonzero(dim=1))
masked = torch.zeros(N).masked_scatter(train, torch.arange(8.0))
print(masked, torch.argwhere(train).flatten())
