"""BatchNorm converted to SyncBatchNorm, which in one process is the same."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(37)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels, momentum=0.2)

    def forward(self, x):
        return torch.relu(x + self.bn(self.conv(x)))


net = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.BatchNorm2d(4),
    Block(4),
    nn.Flatten(),
    nn.Linear(64, 2),
    nn.BatchNorm1d(2, affine=False),
)
for p in net.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype(np.float32)))
sync = nn.SyncBatchNorm.convert_sync_batchnorm(net)
print(sync)
print(type(sync[1]).__name__, sync[2].bn.momentum, sync[5].affine)
print(sorted(k for k in sync.state_dict() if "running" in k or "tracked" in k))
x = torch.from_numpy(rng.standard_normal((3, 1, 6, 6)).astype(np.float32))
sync.eval()
with torch.no_grad():
    print(sync(x))
reference = nn.BatchNorm2d(4)
layer = nn.SyncBatchNorm(4)
layer.load_state_dict(reference.state_dict())
z = torch.from_numpy(rng.standard_normal((5, 4, 3, 3)).astype(np.float32))
reference.eval(), layer.eval()
print(torch.equal(reference(z), layer(z)), layer.num_batches_tracked.item())
