"""A graph convolution with a normalised adjacency, semi-supervised on two clubs."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(31)
edges = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (3, 5), (5, 6), (6, 7), (5, 7)]
A = torch.zeros(8, 8)
for i, j in edges:
    A[i, j] = A[j, i] = 1.0
A_hat = A + torch.eye(8)
D = torch.diag(A_hat.sum(1).pow(-0.5))
norm = D @ A_hat @ D


class GraphConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(inside, outside))
        self.bias = nn.Parameter(torch.Tensor(outside))
        self.reset_parameters()

    def reset_parameters(self):
        self.weight.data = torch.from_numpy(rng.normal(0, 0.5, self.weight.shape)).float()
        nn.init.zeros_(self.bias)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__}({self.weight.shape[0]}, {self.weight.shape[1]})"


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConv(8, 4), GraphConv(4, 2)
        self.dropout = 0.0

    def forward(self, x, adj):
        x = F.elu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN()
print(model)
labels = torch.tensor([0, -1, -1, -1, -1, -1, -1, 1])
mask = labels >= 0
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
for epoch in range(6):
    optimizer.zero_grad()
    output = model(torch.eye(8), norm)
    loss = F.nll_loss(output[mask], labels[mask])
    loss.backward()
    optimizer.step()
    print(f"{epoch} {loss.item():.5f}")
print(output.max(1)[1].shape, f"{output.exp().sum().item():.4f}")
