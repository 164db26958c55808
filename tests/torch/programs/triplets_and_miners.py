"""Siamese networks and triplets: margin losses, hard mining, samplers by class, precision at k."""

import itertools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler, default_collate

rng = np.random.default_rng(77)


class Digits(Dataset):
    def __init__(self, n=24, classes=4):
        self.labels = np.arange(n) % classes
        centres = rng.normal(size=(classes, 6))
        self.x = (centres[self.labels] + 0.3 * rng.normal(size=(n, 6))).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"x": self.x[i], "label": int(self.labels[i]), "id": f"s{i}"}


class PKSampler(Sampler):
    """P classes with K samples each in a batch."""

    def __init__(self, labels, p, k):
        self.by_class = {c: np.flatnonzero(labels == c) for c in np.unique(labels)}
        self.p, self.k = p, k

    def __iter__(self):
        for group in (
            itertools.batched(sorted(self.by_class), self.p)
            if hasattr(itertools, "batched")
            else [(0, 1), (2, 3)]
        ):
            yield [int(i) for c in group for i in self.by_class[c][: self.k]]

    def __len__(self):
        return len(self.by_class) // self.p


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 10), nn.PReLU(), nn.Linear(10, 4))

    def forward(self, x):
        return F.normalize(self.net(x), p=2, dim=-1)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = F.pairwise_distance(a, b, keepdim=True)
        return torch.mean(
            same * d.pow(2) + (1 - same) * torch.clamp(self.margin - d, min=0.0).pow(2)
        )


def batch_hard(embeddings, labels, margin=0.5):
    d = torch.cdist(embeddings, embeddings)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    eye = torch.eye(len(labels), dtype=torch.bool)
    hardest_positive = (d * (same & ~eye).float()).max(dim=1)[0]
    hardest_negative = d.masked_fill(same, float("inf")).min(dim=1).values
    return F.relu(hardest_positive - hardest_negative + margin).mean()


dataset = Digits()
loader = DataLoader(dataset, batch_sampler=PKSampler(dataset.labels, 2, 3))
print(len(loader))
model = Embedder()
for p in model.parameters():
    p.data = torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape)).astype(np.float32))
optimizer = torch.optim.Adamax(model.parameters(), lr=0.02)
swa = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.03, step_size_up=2, cycle_momentum=False)
semi = nn.TripletMarginLoss(margin=0.4, p=2, swap=True)
own = nn.TripletMarginWithDistanceLoss(
    distance_function=lambda a, b: 1.0 - F.cosine_similarity(a, b), margin=0.3
)
for epoch in range(2):
    for batch in loader:
        x, labels = batch["x"], batch["label"]
        z = model(x)
        losses = {
            "hard": batch_hard(z, labels),
            "pairs": ContrastiveLoss()(
                z[0::2], z[1::2], (labels[0::2] == labels[1::2]).float().unsqueeze(1)
            ),
            "triplet": semi(z[0:2], z[1:3], z[3:5]),
            "cosine": own(z[0:2], z[1:3], z[3:5]),
            "embedding": F.cosine_embedding_loss(z[:3], z[3:], -torch.ones(3), margin=0.1),
            "npairs": F.cross_entropy(
                z @ z.t() / 0.2 - 1e4 * torch.eye(6), torch.tensor([1, 2, 0, 4, 5, 3])
            ),
        }
        total = torch.stack(list(losses.values())).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        swa.step()
        print(
            " ".join(f"{k}={v.item():.5f}" for k, v in losses.items()),
            batch["id"][0],
            f"{swa.get_last_lr()[0]:.4f}",
        )
with torch.no_grad():
    z = model(torch.from_numpy(dataset.x))
    labels = torch.from_numpy(dataset.labels)
    knn = torch.cdist(z, z).fill_diagonal_(float("inf")).topk(3, largest=False)
    print("precision@3", (labels[knn.indices] == labels[:, None]).float().mean(), knn.values.mean())
    centroids = torch.zeros(4, 4).index_add_(0, labels, z).div_(torch.bincount(labels).unsqueeze(1))
    print(
        "nearest centroid", (torch.cdist(z, centroids).argmin(1) == labels).double().mean().item()
    )
counts = torch.bincount(torch.from_numpy(dataset.labels)).double()
sampler = WeightedRandomSampler((1 / counts)[labels], num_samples=10, replacement=True)
picked = list(sampler)
print(
    len(picked), all(0 <= i < 24 for i in picked), default_collate([{"a": 1, "b": (2.0, "t")}] * 2)
)
