"""A multilayer perceptron that learns a spiral of three classes, with Adam."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(0)
angle = rng.uniform(0, 4, (3, 50)) + np.arange(3)[:, None] * 2.1
points = np.stack([angle * np.cos(angle), angle * np.sin(angle)], -1).reshape(150, 2) / 4
x = torch.from_numpy(points.astype(np.float32))
y = torch.tensor(np.repeat(np.arange(3), 50), dtype=torch.long)


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(2, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 3)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = torch.tanh(self.second(x))
        return self.last(x)


device = torch.device("cuda" if False else "cpu")
model = Net(16).to(device)
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape)).astype(np.float32)))

optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss()
model.train()
for epoch in range(30):
    optimizer.zero_grad()
    output = model(x.to(device))
    loss = criterion(output, y.to(device))
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch} loss {loss.item():.5f}")

model.eval()
with torch.no_grad():
    prediction = model(x).argmax(dim=1)
    accuracy = (prediction == y).float().mean()
print(f"accuracy {accuracy.item():.3f}")
print("gradient norms", *[f"{p.grad.norm().item():.5f}" for p in model.parameters()])
