"""Residual blocks with projections, and a schedule of rates."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, blocks, classes=5):
        super().__init__()
        self.in_planes = 4
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.layer1 = self._make_layer(4, blocks[0], 1)
        self.layer2 = self._make_layer(8, blocks[1], 2)
        self.linear = nn.Linear(8, classes)

    def _make_layer(self, planes, count, stride):
        layers = []
        for s in [stride] + [1] * (count - 1):
            layers.append(BasicBlock(self.in_planes, planes, s))
            self.in_planes = planes * BasicBlock.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        out = self.layer2(self.layer1(self.stem(x)))
        out = F.avg_pool2d(out, out.shape[-1])
        return self.linear(out.view(out.size(0), -1))


rng = np.random.default_rng(3)
net = ResNet([1, 1])
for m in net.modules():
    if isinstance(m, (nn.Conv2d, nn.Linear)):
        m.weight.data = torch.tensor(rng.normal(0, 0.2, m.weight.shape), dtype=torch.float32)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.constant_(m.weight, 1)
        nn.init.constant_(m.bias, 0)
nn.init.zeros_(net.linear.bias)

x = torch.tensor(rng.normal(size=(6, 3, 8, 8)), dtype=torch.float32)
y = torch.tensor([0, 1, 2, 3, 4, 0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
for step in range(5):
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(f"{step} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
print([name for name, _ in net.named_children()], len(list(net.state_dict())))
