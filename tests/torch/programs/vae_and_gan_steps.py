"""A variational autoencoder, a GAN and a gradient penalty: what a step before had made is looked at after it."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Independent, Normal, kl_divergence


def fill(m, s=0.2):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.cos(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.7) * s
                ).view_as(p)
            )


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 12)
        self.fc21 = nn.Linear(12, 3)
        self.fc22 = nn.Linear(12, 3)
        self.fc3 = nn.Linear(3, 12)
        self.fc4 = nn.Linear(12, 20)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.zeros_like(std) + 0.3
        return mu + eps * std

    def forward(self, x):
        mu, lv = self.encode(x.view(-1, 20))
        z = self.reparameterize(mu, lv)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, lv


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


m = VAE()
fill(m)
opt = optim.Adam(m.parameters(), lr=1e-2)
data = (torch.sin(torch.arange(160.0)).reshape(8, 4, 5) > 0).float()
m.train()
train_loss = 0
for e in range(5):
    opt.zero_grad()
    r, mu, lv = m(data)
    loss = loss_function(r, data, mu, lv)
    loss.backward()
    train_loss += loss.item()
    opt.step()
    print(
        f"Train Epoch: {e} [{e * 8}/{40} ({100.0 * e / 5:.0f}%)]\tLoss: {loss.item() / len(data):.6f}"
    )
q = Independent(Normal(mu, (lv * 0.5).exp()), 1)
p = Independent(Normal(torch.zeros_like(mu), torch.ones_like(mu)), 1)
print(q)
print(kl_divergence(q, p).mean())
print(q.rsample().shape, q.log_prob(mu).shape, q.entropy())
# GAN
G = nn.Sequential(
    nn.ConvTranspose2d(4, 8, 4, 1, 0, bias=False),
    nn.BatchNorm2d(8),
    nn.ReLU(True),
    nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
D = nn.Sequential(
    nn.Conv2d(1, 8, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(8, 1, 4, 1, 0, bias=False),
    nn.Flatten(0),
)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


G.apply(weights_init)
D.apply(weights_init)
fill(G)
fill(D)
crit = nn.BCEWithLogitsLoss()
oD = optim.Adam(D.parameters(), lr=0.01, betas=(0.5, 0.999))
oG = optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.999))
real = torch.sin(torch.arange(3 * 64.0)).reshape(3, 1, 8, 8)
for i in range(4):
    D.zero_grad()
    label = torch.full((3,), 1.0, dtype=torch.float)
    errD_real = crit(D(real), label)
    errD_real.backward()
    D_x = D(real).mean().item()
    noise = torch.cos(torch.arange(12.0) + i).reshape(3, 4, 1, 1)
    fake = G(noise)
    label.fill_(0.0)
    out = D(fake.detach()).view(-1)
    errD_fake = crit(out, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    oD.step()
    G.zero_grad()
    label.fill_(1.0)
    errG = crit(D(fake).view(-1), label)
    errG.backward()
    oG.step()
    print(f"[{i}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f} D(x): {D_x:.4f}")
# WGAN-GP penalty
alpha = torch.full((3, 1, 1, 1), 0.4)
inter = (alpha * real + (1 - alpha) * fake.detach()).requires_grad_(True)
d = D(inter)
(g,) = torch.autograd.grad(
    outputs=d,
    inputs=inter,
    grad_outputs=torch.ones_like(d),
    create_graph=True,
    retain_graph=True,
    only_inputs=True,
)
gp = ((g.view(3, -1).norm(2, dim=1) - 1) ** 2).mean()
D.zero_grad()
gp.backward()
print(f"{gp.item():.6f}", D[0].weight.grad.norm(), D[2].weight.grad.norm())
print(G)
print(G.state_dict().keys())
