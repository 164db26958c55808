"""PointNet and one set-abstraction level of PointNet++ on clouds of points: farthest point
sampling, ball queries, an input transform with its orthogonality penalty, chamfer distance.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            fan = p.shape[1] if p.dim() > 1 else 1
            values = rng.uniform(-1, 1, tuple(p.shape)) / fan**0.5
            p.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def index_points(points, index):
    """points [B, N, C], index [B, S] or [B, S, K]."""
    batch = points.shape[0]
    view_shape = [batch] + [1] * (index.dim() - 1)
    repeat_shape = [1] + list(index.shape)[1:]
    rows = torch.arange(batch, dtype=torch.long, device=points.device)
    rows = rows.view(view_shape).repeat(repeat_shape)
    return points[rows, index, :]


def farthest_point_sample(xyz, count):
    batch, number, _ = xyz.shape
    chosen = torch.zeros(batch, count, dtype=torch.long)
    distance = torch.full((batch, number), 1e10)
    farthest = torch.zeros((batch,), dtype=torch.long)
    rows = torch.arange(batch)
    for i in range(count):
        chosen[:, i] = farthest
        centre = xyz[rows, farthest, :].view(batch, 1, 3)
        dist = torch.sum((xyz - centre) ** 2, -1)
        closer = dist < distance
        distance[closer] = dist[closer]
        farthest = torch.max(distance, -1)[1]
    return chosen


def query_ball(radius, samples, xyz, centres):
    batch, number, _ = xyz.shape
    queries = centres.shape[1]
    group = torch.arange(number).view(1, 1, number).repeat([batch, queries, 1])
    far = torch.cdist(centres, xyz) > radius
    group[far] = number
    group = group.sort(dim=-1)[0][:, :, :samples]
    first = group[:, :, 0].view(batch, queries, 1).repeat([1, 1, samples])
    mask = group == number
    group[mask] = first[mask]
    return group


class TNet(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.conv1, self.conv2 = nn.Conv1d(k, 16, 1), nn.Conv1d(16, 32, 1)
        self.fc = nn.Linear(32, k * k)
        self.bn1, self.bn2 = nn.BatchNorm1d(16), nn.BatchNorm1d(32)
        self.register_buffer("identity", torch.eye(k).flatten(), persistent=False)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x, _ = torch.max(x, dim=2)
        return (self.fc(x) + self.identity).view(-1, self.k, self.k)


class SetAbstraction(nn.Module):
    def __init__(self, npoint, radius, nsample, inside, widths):
        super().__init__()
        self.npoint, self.radius, self.nsample = npoint, radius, nsample
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for width in widths:
            self.convs.append(nn.Conv2d(inside, width, 1))
            self.norms.append(nn.BatchNorm2d(width))
            inside = width

    def forward(self, xyz, features):
        with torch.no_grad():
            centres = index_points(xyz, farthest_point_sample(xyz, self.npoint))
            index = query_ball(self.radius, self.nsample, xyz, centres)
        grouped = index_points(xyz, index) - centres.unsqueeze(2)
        grouped = torch.cat([grouped, index_points(features, index)], dim=-1)
        x = grouped.permute(0, 3, 2, 1)
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)), inplace=True)
        return centres, x.amax(dim=2).transpose(1, 2)


class PointNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.tnet = TNet(3)
        self.lift = nn.Conv1d(3, 8, 1)
        self.down = SetAbstraction(8, 0.7, 6, 3 + 8, [16, 24])
        self.head = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x):
        transform = self.tnet(x.transpose(2, 1))
        xyz = torch.bmm(x, transform)
        features = F.relu(self.lift(xyz.transpose(1, 2))).transpose(1, 2)
        _, pooled = self.down(xyz, features)
        return self.head(pooled.max(1).values), transform


def orthogonality(transform):
    eye = torch.eye(transform.size(1))[None]
    return torch.mean(torch.norm(torch.bmm(transform, transform.transpose(2, 1)) - eye, dim=(1, 2)))


rng = np.random.RandomState(3)
labels = torch.arange(8) % 4
scale = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.1, 1.0], [0.1, 0.1, 1.0], [0.5, 1.5, 0.2]])
clouds = torch.from_numpy(rng.randn(8, 40, 3).astype(np.float32)) * scale[labels].unsqueeze(1)

picked = farthest_point_sample(clouds, 5)
print("farthest", picked.tolist())
print("balls", query_ball(0.8, 4, clouds[:2], index_points(clouds, picked)[:2]).tolist())

model = fill(PointNet())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
for epoch in range(6):
    model.train()
    optimizer.zero_grad()
    logits, transform = model(clouds)
    loss = F.cross_entropy(logits, labels) + 1e-3 * orthogonality(transform)
    loss.backward()
    optimizer.step()
    correct = logits.data.max(1)[1].eq(labels.data).cpu().sum()
    print(f"epoch {epoch}: {loss.item():.5f}, {correct.item()} of {len(labels)}")
print("norms", [f"{p.grad.norm():.4f}" for p in model.parameters() if p.dim() > 1])
print("buffers", sorted(name for name, _ in model.named_buffers()))
print("state", [name for name in model.state_dict() if "tnet" in name and "bn1" in name])

moved = torch.zeros(8, 40, 3, requires_grad=True)
target = clouds.detach() * 0.5
with torch.no_grad():
    moved += clouds.flip(1) * 0.3
for step in range(3):
    pairs = torch.cdist(moved, target)
    nearest = pairs.min(dim=1)
    chamfer = nearest.values.pow(2).mean() + pairs.min(dim=2)[0].pow(2).mean()
    (gradient,) = torch.autograd.grad(chamfer, moved)
    with torch.no_grad():
        moved -= 20 * gradient
    print(f"chamfer {chamfer:.6f} {gradient.abs().sum():.5f} {int(nearest.indices.sum())}")
