"""state_dict to files and back, for a model, an optimizer and a scheduler; map_location."""

import os
import tempfile

import torch
from torch import nn, optim

model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
with torch.no_grad():
    for i, p in enumerate(model.parameters()):
        p.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape) * (i + 1) / 4)
optimizer = optim.Adam(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
x, y = torch.linspace(-1, 1, 15).view(5, 3), torch.tensor([0, 1, 0, 1, 1])


def train(model, optimizer, scheduler, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item()


print(f"{train(model, optimizer, scheduler, 3):.6f}")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    torch.save(
        {
            "epoch": 3,
            "model_state_dict": model.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "note": ["text", 1.5, None, True, (1, 2)],
        },
        path,
    )
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    second = optim.Adam(other.parameters(), lr=0.5)
    third = optim.lr_scheduler.StepLR(second, step_size=2, gamma=0.5)
    checkpoint = torch.load(path, map_location=torch.device("cpu"), weights_only=True)
    other.load_state_dict(checkpoint["model_state_dict"])
    second.load_state_dict(checkpoint["optimizer_state_dict"])
    third.load_state_dict(checkpoint["scheduler"])
    print(checkpoint["epoch"], checkpoint["note"], third.last_epoch, second.param_groups[0]["lr"])
    tensors = [torch.arange(3), torch.tensor([[1.5]], dtype=torch.float64), torch.tensor(True)]
    torch.save(tensors, os.path.join(folder, "tensors.pt"))
    print(torch.load(os.path.join(folder, "tensors.pt")))
print(f"{train(model, optimizer, scheduler, 3):.6f} {train(other, second, third, 3):.6f}")
state = optimizer.state_dict()
print(sorted(state), sorted(state["state"][0]), int(state["state"][0]["step"]))
partial = {k: v for k, v in model.state_dict().items() if k.startswith("0.")}
print(other.load_state_dict(partial, strict=False).missing_keys)
try:
    other.load_state_dict(partial)
except RuntimeError:
    print("names are missing")
