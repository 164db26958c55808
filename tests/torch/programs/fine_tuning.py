"""Fine-tuning: a frozen backbone, a new head, later all layers with rates of their own."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

rng = np.random.default_rng(24)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.backbone(x))


model = Net()
for p in model.parameters():
    p.data = torch.tensor(rng.normal(0.2, 0.4, tuple(p.shape)), dtype=torch.float32)
for param in model.parameters():
    param.requires_grad = False
num_ftrs = model.fc.in_features
model.fc = nn.Linear(num_ftrs, 2)
nn.init.constant_(model.fc.weight, 0.1)
nn.init.zeros_(model.fc.bias)
x = torch.tensor(rng.normal(size=(12, 4)), dtype=torch.float32)
y = torch.tensor(rng.integers(0, 2, 12))
print([n for n, p in model.named_parameters() if p.requires_grad])
optimizer = optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1, momentum=0.9)
before = model.backbone[0].weight.clone()
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.CrossEntropyLoss()(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
print(torch.equal(before, model.backbone[0].weight), model.backbone[0].weight.grad)
for param in model.backbone.parameters():
    param.requires_grad_(True)
optimizer = optim.Adam(
    [
        {"params": model.backbone.parameters(), "lr": 1e-3},
        {"params": model.fc.parameters()},
    ],
    lr=1e-2,
)
model.backbone[1].eval()
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
print([g["lr"] for g in optimizer.param_groups], torch.equal(before, model.backbone[0].weight))
