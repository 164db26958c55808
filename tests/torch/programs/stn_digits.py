"""A spatial transformer beside the plain network, and each mode of affine_grid and grid_sample."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(11)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2 = nn.Conv2d(4, 6, kernel_size=5)
        self.conv2_drop = nn.Dropout2d(p=0.0)
        self.fc1 = nn.Linear(6 * 4 * 4, 12)
        self.fc2 = nn.Linear(12, 10)
        self.localization = nn.Sequential(
            nn.Conv2d(1, 3, kernel_size=7),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
            nn.Conv2d(3, 4, kernel_size=5),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
        )
        self.fc_loc = nn.Sequential(nn.Linear(4 * 3 * 3, 8), nn.ReLU(True), nn.Linear(8, 3 * 2))
        for p in self.parameters():
            p.data.copy_(torch.from_numpy(rng.normal(0, 0.15, tuple(p.shape))))
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def stn(self, x):
        xs = self.localization(x)
        xs = xs.view(-1, 4 * 3 * 3)
        theta = self.fc_loc(xs)
        theta = theta.view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 96)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, p=0.0, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


model = Net().to(device)
optimizer = optim.SGD(model.parameters(), lr=0.05)
data = torch.from_numpy(rng.uniform(size=(8, 1, 28, 28))).float()
target = torch.from_numpy(rng.integers(0, 10, 8))
for epoch in range(3):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(data.to(device)), target.to(device))
    loss.backward()
    optimizer.step()
    print(f"{epoch} {loss.item():.6f} {model.fc_loc[2].bias.grad.norm():.6f}")
with torch.no_grad():
    model.eval()
    output = model(data)
    pred = output.max(1, keepdim=True)[1]
    print(
        pred.eq(target.view_as(pred)).sum().item(),
        F.nll_loss(output, target, reduction="sum").item(),
    )
x = torch.from_numpy(rng.normal(size=(2, 2, 5, 6))).requires_grad_()
theta = torch.tensor(
    [[[0.8, 0.3, 0.1], [-0.4, 1.2, -0.2]], [[1.47, 0.03, 0.41], [0.11, 0.73, 0.02]]],
    dtype=torch.float64,
    requires_grad=True,
)
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (False, True):
            out = F.grid_sample(
                x, F.affine_grid(theta, [2, 2, 4, 7], align_corners=corners), mode, padding, corners
            )
            gx, gt = torch.autograd.grad(out.square().sum(), [x, theta], allow_unused=True)
            print(
                mode,
                padding,
                corners,
                f"{out.sum():.6f} {gx.norm():.6f}",
                "" if mode == "nearest" else f"{gt.norm():.6f}",
            )
volume = torch.from_numpy(rng.normal(size=(1, 1, 3, 4, 5)))
theta3 = torch.eye(3, 4, dtype=torch.float64)[None] * 0.9
print(
    F.grid_sample(
        volume, F.affine_grid(theta3, (1, 1, 3, 3, 3), align_corners=False), align_corners=False
    ).sum()
)
