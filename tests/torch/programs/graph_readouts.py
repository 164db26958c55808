"""Graphs of several sizes in one batch: principal neighbourhood aggregation by scatter_reduce,
softmax over segments, gated and sorted readouts, edges dropped and features propagated.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Data:
    def __init__(self, x, edge_index, y):
        self.x, self.edge_index, self.y = x, edge_index, y


class Batch:
    @classmethod
    def from_list(cls, graphs):
        self = cls()
        sizes = torch.tensor([g.x.size(0) for g in graphs])
        offsets = F.pad(sizes.cumsum(0), (1, 0))[:-1]
        self.x = torch.cat([g.x for g in graphs], dim=0)
        self.edge_index = torch.cat([g.edge_index + o for g, o in zip(graphs, offsets)], dim=1)
        self.batch = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
        self.y, self.sizes, self.num_graphs = torch.stack([g.y for g in graphs]), sizes, len(graphs)
        return self


def scatter(src, index, dim_size, reduce):
    shape = [dim_size, *src.shape[1:]]
    index = index.view(-1, *[1] * (src.dim() - 1)).expand_as(src)
    if reduce in ("amax", "amin", "prod"):
        return src.new_zeros(shape).scatter_reduce_(
            0, index, src, reduce=reduce, include_self=False
        )
    return src.new_zeros(shape).scatter_reduce(0, index, src, reduce)


def degree(index, n):
    return torch.zeros(n).scatter_add_(0, index, torch.ones(index.size(0)))


def softmax(src, index, n):
    top = torch.full((n,), float("-inf")).index_reduce(0, index, src.detach(), "amax")
    out = (src - top[index]).exp()
    return out / (scatter(out, index, n, "sum")[index] + 1e-16)


class PNAConv(nn.Module):
    aggregators = ("mean", "amin", "amax", "std")

    def __init__(self, inside, outside, average):
        super().__init__()
        self.pre = nn.Linear(2 * inside, inside)
        self.post = nn.Linear(inside * (len(self.aggregators) * 3 + 1), outside)
        self.average = average

    def forward(self, x, edge_index):
        row, col = edge_index
        n = x.size(0)
        h = self.pre(torch.cat([x[col], x.index_select(0, row)], dim=-1))
        mean = torch.zeros_like(x).index_reduce_(0, col, h, "mean", include_self=False)
        square = scatter(h * h, col, n, "mean")
        std = scatter(h * h, col, n, "sum") / degree(col, n).clamp(min=1)[:, None] - mean * mean
        out = torch.cat(
            [
                mean,
                scatter(h, col, n, "amin"),
                scatter(h, col, n, "amax"),
                F.relu(std).add(1e-5).sqrt(),
            ],
            dim=-1,
        )
        log = torch.log(degree(col, n) + 1).unsqueeze(-1)
        amplify, attenuate = log / self.average, self.average / log.clamp(min=1e-3)
        out = torch.cat([x, out, out * amplify, out * attenuate.clamp(max=5)], dim=-1)
        return self.post(out) + 0 * square.sum()


class GATConv(nn.Module):
    def __init__(self, inside, outside, heads):
        super().__init__()
        self.heads, self.outside = heads, outside
        self.lin = nn.Linear(inside, heads * outside, bias=False)
        self.att = nn.Parameter(torch.empty(2, heads, outside))
        self.bias = nn.Parameter(torch.zeros(heads * outside))

    def forward(self, x, edge_index):
        n = x.size(0)
        loops = torch.arange(n, dtype=torch.long).unsqueeze(0).repeat(2, 1)
        row, col = torch.cat([edge_index, loops], dim=1)
        h = self.lin(x).view(-1, self.heads, self.outside)
        alpha = (h * self.att[0]).sum(-1)[row] + (h * self.att[1]).sum(-1)[col]
        alpha = F.leaky_relu(alpha, 0.2)
        alpha = torch.stack([softmax(a, col, n) for a in alpha.unbind(1)], dim=1)
        out = torch.zeros_like(h).index_add(0, col, h[row] * alpha.unsqueeze(-1))
        return out.flatten(1) + self.bias


class Network(nn.Module):
    def __init__(self, average):
        super().__init__()
        self.embed = nn.Embedding(5, 6)
        self.conv1, self.conv2 = PNAConv(6, 6, average), GATConv(6, 3, heads=2)
        self.norm = nn.BatchNorm1d(6)
        self.gate = nn.Linear(6, 1)
        self.out = nn.Linear(24, 2)

    def forward(self, data):
        n, b = data.num_graphs, data.batch
        x = self.embed(data.x)
        x = x + F.elu(self.norm(self.conv1(x, data.edge_index)))
        x = F.elu(self.conv2(x, data.edge_index))
        weights = softmax(self.gate(x).squeeze(-1), b, n)
        attended = torch.zeros(n, 6).index_add_(0, b, weights[:, None] * x)
        largest = torch.segment_reduce(x, "max", lengths=data.sizes)
        mean = torch.segment_reduce(x, "mean", lengths=data.sizes, axis=0)
        order = torch.sort(x[:, -1], descending=True, stable=True)[1]
        order = order[torch.sort(b[order], stable=True).indices]
        first = F.pad(data.sizes.cumsum(0), (1, 0))[:-1]
        top = x[order][first]
        return self.out(torch.cat([attended, largest, mean, top], dim=1))


rng = np.random.RandomState(0)
graphs = []
for g in range(6):
    n = int(rng.randint(3, 8))
    chain = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    extra = torch.from_numpy(rng.randint(0, n, (2, g)))
    edges = torch.cat([chain, chain.flip(0), extra], dim=1)
    edges = torch.unique(edges, dim=1)
    graphs.append(Data(torch.from_numpy(rng.randint(0, 5, n)), edges, torch.tensor(g % 2)))
data = Batch.from_list(graphs)
print("batch", data.sizes.tolist(), tuple(data.edge_index.shape), data.batch.bincount().tolist())
degrees = degree(data.edge_index[1], data.x.numel())
average = torch.log(degrees + 1).mean().item()
model = Network(average)
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.from_numpy(rng.randn(*p.shape).astype(np.float32)) * 0.4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(5):
    model.train()
    out = model(data)
    loss = F.cross_entropy(out, data.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{epoch} {loss.item():.5f} {(out.argmax(1) == data.y).sum().item()}")
print({n: f"{p.grad.norm():.4f}" for n, p in model.named_parameters()})
pair = Batch.from_list(graphs[1:3])
model.eval()
with torch.no_grad():
    print("pair", [[f"{v:.4f}" for v in row] for row in model(pair).tolist()])

x = torch.tensor([3.0, -1.0, 2.0, 5.0, 5.0, 0.5], requires_grad=True)
offsets = torch.tensor([0, 2, 2, 6])
for reduce in ("sum", "mean", "max", "min", "prod"):
    value = torch.segment_reduce(x, reduce, offsets=offsets, initial=1.0 if reduce != "sum" else 0)
    (g,) = torch.autograd.grad(value.sum(), x)
    print(reduce, [f"{v:.4f}" for v in value.tolist()], [f"{v:.4f}" for v in g.tolist()])
for reduce in ("prod", "amax", "amin", "mean", "sum"):
    base = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    got = base.scatter_reduce(
        0, torch.tensor([0, 0, 1, 1, 1, 0]), x, reduce=reduce, include_self=True
    )
    got.pow(2).sum().backward()
    print(reduce, got.tolist(), [f"{v:.4f}" for v in base.grad.tolist()], f"{x.grad.sum():.4f}")
    x.grad.zero_()

adjacency = torch.sparse_coo_tensor(
    data.edge_index, torch.ones(data.edge_index.size(1)), (len(data.x),) * 2
)
rank = torch.full((len(data.x), 1), 1.0 / len(data.x))
outdegree = torch.sparse.sum(adjacency, dim=1).to_dense().clamp(min=1).unsqueeze(1)
for _ in range(20):
    rank = 0.85 * torch.sparse.mm(adjacency.t(), rank / outdegree) + 0.15 / len(data.x)
print("rank", f"{rank.sum():.5f} {rank.max():.6f}", rank.squeeze().topk(3).indices.tolist())
