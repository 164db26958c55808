"""Graph networks: GCN by sparse products, GraphSAGE by index_add, GAT by scatter_reduce softmax, GIN, pooling by graph, batches of graphs."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(71)
n = 12
edges = set()
while len(edges) < 22:
    a, b = rng.integers(0, n, 2)
    if a != b:
        edges |= {(int(a), int(b)), (int(b), int(a))}
edge_index = torch.tensor(sorted(edges)).t().contiguous()
x = torch.from_numpy(rng.normal(size=(n, 5)).astype(np.float32))
y = torch.from_numpy(rng.integers(0, 3, n))


def normalized_adjacency(edge_index, n):
    loops = torch.arange(n).repeat(2, 1)
    idx = torch.cat([edge_index, loops], dim=1)
    deg = torch.zeros(n).scatter_add_(0, idx[0], torch.ones(idx.size(1)))
    inv = deg.pow(-0.5)
    return torch.sparse_coo_tensor(idx, inv[idx[0]] * inv[idx[1]], (n, n)).coalesce()


adj = normalized_adjacency(edge_index, n)
print(
    adj.shape,
    adj._nnz(),
    adj.is_sparse,
    adj.to_dense().sum(),
    torch.allclose(adj.to_dense(), adj.to_dense().t()),
)
print(adj.indices()[:, :4], adj.values()[:4])


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(i, o))
        self.bias = nn.Parameter(torch.zeros(o))
        self.weight.data.copy_(torch.from_numpy(rng.normal(0, 0.5, (i, o))))

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        return torch.spmm(adj, support) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(5, 8), GraphConvolution(8, 3)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
idx_train = torch.tensor([0, 1, 2, 5, 7])
for epoch in range(4):
    optimizer.zero_grad()
    out = model(x, adj)
    loss = F.nll_loss(out[idx_train], y[idx_train])
    loss.backward()
    optimizer.step()
    print(f"gcn {epoch} {loss.item():.5f} {model.gc1.weight.grad.norm():.5f}")
same = torch.sparse.mm(adj, x) - adj @ x
print(same.abs().max(), (adj.t() @ x - adj.to_dense().t() @ x).abs().max() < 1e-6)
csr = adj.to_sparse_csr()
print(
    csr.crow_indices(),
    csr.col_indices()[:5],
    csr.layout,
    (csr @ x - adj.to_dense() @ x).abs().max() < 1e-6,
)
scale = torch.rand(adj._nnz(), requires_grad=True)
weighted = torch.sparse_coo_tensor(adj.indices(), adj.values() * scale, adj.shape)
torch.sparse.mm(weighted, x).pow(2).sum().backward()
dense = (
    torch.zeros(n, n)
    .index_put((adj.indices()[0], adj.indices()[1]), adj.values() * scale.detach())
    .requires_grad_()
)
(dense @ x).pow(2).sum().backward()
print(
    torch.allclose(
        scale.grad, dense.grad[adj.indices()[0], adj.indices()[1]] * adj.values(), atol=1e-5
    )
)
d = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
s = d.to_sparse()
print(
    s.indices(),
    s.values(),
    (s * 2).to_dense(),
    torch.sparse.sum(s),
    torch.sparse.sum(s, dim=0).to_dense(),
    (s + s).to_dense(),
)


def segment_softmax(score, index, n):
    top = torch.full((n,), float("-inf")).scatter_reduce(
        0, index, score, reduce="amax", include_self=True
    )
    e = (score - top[index]).exp()
    return e / (torch.zeros(n).index_add(0, index, e)[index] + 1e-16)


class GATLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W, self.a = nn.Linear(i, o, bias=False), nn.Linear(2 * o, 1, bias=False)
        for p in self.parameters():
            p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.W(x)
        e = F.leaky_relu(self.a(torch.cat([h[src], h[dst]], dim=-1)).squeeze(-1), 0.2)
        alpha = segment_softmax(e, dst, len(x))
        return torch.zeros_like(h).index_add(0, dst, alpha.unsqueeze(-1) * h[src])


gat = GATLayer(5, 3)
loss = F.cross_entropy(gat(x, edge_index), y)
loss.backward()
print(f"gat {loss.item():.5f} {gat.a.weight.grad.norm():.6f}")
src, dst = edge_index
mean = torch.zeros(n, 5).index_reduce_(0, dst, x[src], "mean", include_self=False)
maxi = torch.zeros(n, 5).scatter_reduce_(
    0, dst[:, None].expand(-1, 5), x[src], "amax", include_self=False
)
print(mean.sum(), maxi.sum())
batch = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
pooled = torch.zeros(3, 5).scatter_add_(0, batch.unsqueeze(1).expand_as(x), x)
counts = torch.bincount(batch, minlength=3)
print((pooled / counts[:, None]).sum(1), torch.block_diag(torch.ones(2, 2), torch.eye(1)))
deg = torch.bincount(dst, minlength=n)
walk = torch.linalg.matrix_power(adj.to_dense(), 3).diagonal()
print(deg, walk.sum())
