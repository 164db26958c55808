"""A graph network with index_add, degrees, edge softmax and global pooling."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


class GCNLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.empty(o))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.zeros_(self.bias)

    def forward(self, x, edge_index):
        n = x.size(0)
        loops = torch.arange(n, device=x.device).unsqueeze(0).repeat(2, 1)
        row, col = torch.cat([edge_index, loops], dim=1)
        deg = torch.zeros(n).scatter_add_(0, col, torch.ones(col.numel()))
        norm = deg.pow(-0.5)
        norm[torch.isinf(norm)] = 0
        w = norm[row] * norm[col]
        out = torch.zeros(n, self.bias.numel()).index_add_(0, col, self.lin(x)[row] * w.view(-1, 1))
        return out + self.bias


class GATLayer(nn.Module):
    def __init__(self, i, o, heads=2):
        super().__init__()
        self.lin = nn.Linear(i, heads * o)
        self.att = nn.Parameter(torch.zeros(1, heads, 2 * o))
        self.heads, self.o = heads, o

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x).view(-1, self.heads, self.o)
        e = F.leaky_relu((torch.cat([h[src], h[dst]], -1) * self.att).sum(-1), 0.2)
        top = torch.full((x.size(0), self.heads), -torch.inf).scatter_reduce(
            0, dst[:, None].expand_as(e), e, reduce="amax"
        )
        a = (e - top[dst].detach()).exp()
        total = torch.zeros(x.size(0), self.heads).index_add(0, dst, a)
        a = a / total[dst]
        out = torch.zeros_like(h).index_add(0, dst, a.unsqueeze(-1) * h[src])
        return out.flatten(1), a


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.fc = GCNLayer(4, 8), GATLayer(8, 4), nn.Linear(8, 2)

    def forward(self, x, edge_index, batch):
        x = self.c1(x, edge_index).relu()
        x, a = self.c2(x, edge_index)
        x = F.elu(x)
        size = int(batch.max()) + 1
        pooled = torch.zeros(size, x.size(1)).index_reduce_(0, batch, x, "mean", include_self=False)
        return self.fc(pooled), a


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(10, 4).astype(np.float32))
pairs = [(i, (i + 1) % 5) for i in range(5)] + [
    (5 + i, 5 + j) for i in range(5) for j in range(5) if i < j
]
edge_index = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
batch, y = torch.tensor([0] * 5 + [1] * 5), torch.tensor([0, 1])
model = init(Net())
optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(6):
    optimizer.zero_grad()
    out, a = model(x, edge_index, batch)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    print(
        epoch,
        f"{loss.item():.5f} {grad_norm(model):.5f}",
        out.argmax(1).tolist(),
        f"{a.max().item():.4f}",
    )
adj = torch.zeros(10, 10)
adj[edge_index[0], edge_index[1]] = 1
print(
    adj.sum(0).tolist(),
    torch.equal(adj, adj.T),
    torch.linalg.matrix_power(adj, 3).trace().item() / 6,
)
