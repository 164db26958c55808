"""A generator and a discriminator that learn against each other, with detach."""

import numpy as np
import torch
from torch import nn, optim

rng = np.random.default_rng(12)
netG = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
netD = nn.Sequential(
    nn.Linear(1, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid()
)


def weights_init(m):
    if isinstance(m, nn.Linear):
        m.weight.data = torch.from_numpy(rng.normal(0, 0.5, tuple(m.weight.shape))).float()
        m.bias.data.fill_(0.01)


netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=0.02, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.02, betas=(0.5, 0.999))
for step in range(6):
    netD.zero_grad()
    real = torch.tensor(rng.normal(3, 0.5, (16, 1)), dtype=torch.float)
    label = torch.full((16,), 1.0, dtype=torch.float)
    output = netD(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    noise = torch.tensor(rng.normal(size=(16, 2)), dtype=torch.float)
    fake = netG(noise)
    label.fill_(0.0)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    print(f"[{step}] D {errD.item():.4f} G {errG.item():.4f} {output.mean().item():.4f}")
