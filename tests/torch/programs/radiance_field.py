"""A radiance field: rays through pixels, positional encodings, volume rendering with coarse and
fine samples by inverse transform, and a distance field traced along rays with an eikonal term.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def rays(height, width, focal, pose):
    i, j = torch.meshgrid(torch.arange(width).float(), torch.arange(height).float(), indexing="xy")
    dirs = torch.stack(
        [(i - width * 0.5) / focal, -(j - height * 0.5) / focal, -torch.ones_like(i)], -1
    )
    directions = torch.sum(dirs[..., None, :] * pose[:3, :3], -1)
    return pose[:3, -1].expand(directions.shape).reshape(-1, 3), directions.reshape(-1, 3)


def rotation(angle):
    c, s = np.cos(angle), np.sin(angle)
    pose = torch.eye(4)
    pose[0, 0], pose[0, 2], pose[2, 0], pose[2, 2] = float(c), float(s), float(-s), float(c)
    pose[:3, 3] = pose[:3, 2] * 3.0
    return pose


class Encoding(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.linspace(0.0, levels - 1, levels))

    def forward(self, x):
        scaled = x[..., None] * self.bands
        return torch.cat([x, torch.sin(scaled).flatten(-2), torch.cos(scaled).flatten(-2)], dim=-1)


class Field(nn.Module):
    def __init__(self, seed, width=24):
        super().__init__()
        self.places, self.views = Encoding(3), Encoding(1)
        self.layers = nn.ModuleList([nn.Linear(21, width), nn.Linear(width + 21, width)])
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width + 9, 3)
        rng = np.random.RandomState(seed)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                bound = (6 / (m.in_features + m.out_features)) ** 0.5
                m.weight.data = torch.tensor(
                    rng.uniform(-bound, bound, (m.out_features, m.in_features)), dtype=torch.float32
                )
                torch.nn.init.zeros_(m.bias)

    def forward(self, x, d):
        e = h = self.places(x)
        for n, layer in enumerate(self.layers):
            h = F.relu(layer(h if n == 0 else torch.cat([h, e], -1)))
        colour = torch.sigmoid(self.colour(torch.cat([h, self.views(d)], -1)))
        return colour, F.softplus(self.density(h) - 1.0).squeeze(-1)


def render(colour, density, z, directions, white=True):
    gaps = z[..., 1:] - z[..., :-1]
    gaps = torch.cat([gaps, torch.full_like(gaps[..., :1], 1e10)], -1)
    gaps = gaps * torch.norm(directions[..., None, :], dim=-1)
    alpha = 1.0 - torch.exp(-density * gaps)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)
    weights = alpha * through[:, :-1]
    rgb = torch.sum(weights[..., None] * colour, -2)
    depth, acc = torch.sum(weights * z, -1), torch.sum(weights, -1)
    disparity = 1.0 / torch.max(1e-10 * torch.ones_like(depth), depth / acc)
    return (rgb + (1.0 - acc[..., None]) if white else rgb), disparity, weights


def sample_pdf(bins, weights, count):
    weights = weights + 1e-5
    cdf = torch.cumsum(weights / torch.sum(weights, -1, keepdim=True), -1)
    cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
    u = torch.linspace(0.02, 0.98, steps=count).expand(list(cdf.shape[:-1]) + [count]).contiguous()
    index = torch.searchsorted(cdf, u, right=True)
    below = torch.max(torch.zeros_like(index - 1), index - 1)
    above = torch.min((cdf.shape[-1] - 1) * torch.ones_like(index), index)
    pair = torch.stack([below, above], -1)
    shape = [pair.shape[0], pair.shape[1], cdf.shape[-1]]
    cdf_g = torch.gather(cdf.unsqueeze(1).expand(shape), 2, pair)
    bins_g = torch.gather(bins.unsqueeze(1).expand(shape), 2, pair)
    denom = cdf_g[..., 1] - cdf_g[..., 0]
    denom = torch.where(denom < 1e-5, torch.ones_like(denom), denom)
    t = (u - cdf_g[..., 0]) / denom
    return bins_g[..., 0] + t * (bins_g[..., 1] - bins_g[..., 0])


def shade(fields, origins, directions, near=2.0, far=4.0, count=8, more=6):
    view = F.normalize(directions, dim=-1)
    z = (near * (1.0 - torch.linspace(0, 1, count)) + far * torch.linspace(0, 1, count)).expand(
        len(origins), count
    )
    points = origins[..., None, :] + directions[..., None, :] * z[..., :, None]
    colour, density = fields[0](points, view[:, None].expand(points.shape))
    coarse, _, weights = render(colour, density, z, directions)
    middle = 0.5 * (z[..., 1:] + z[..., :-1])
    fine_z = sample_pdf(middle, weights[..., 1:-1], more).detach()
    z, _ = torch.sort(torch.cat([z, fine_z], -1), -1)
    points = origins[..., None, :] + directions[..., None, :] * z[..., :, None]
    colour, density = fields[1](points, view[:, None].expand(points.shape))
    return coarse, *render(colour, density, z, directions)[:2], z


views = [rays(5, 6, 6.0, rotation(a)) for a in (0.0, 0.8, -0.7)]


def truth(origins, directions):
    d = F.normalize(directions, dim=-1)
    b = (origins * d).sum(-1)
    hit = b * b - (origins * origins).sum(-1) + 0.8
    t = -b - hit.clamp(min=0).sqrt()
    normal = origins + t[:, None] * d
    return torch.where(hit[:, None] > 0, 0.5 + 0.5 * normal, torch.ones(3))


images = [truth(*v) for v in views]
print("images", [f"{i.mean():.5f}" for i in images], [int((i != 1).any(-1).sum()) for i in images])
fields = nn.ModuleList([Field(0), Field(1)])
optimizer = torch.optim.Adam(params=fields.parameters(), lr=5e-3, betas=(0.9, 0.999))
for step in range(5):
    origins, directions = views[step % 3]
    coarse, fine, disparity, z = shade(fields, origins, directions)
    optimizer.zero_grad()
    loss = torch.mean((fine - images[step % 3]) ** 2) + F.mse_loss(coarse, images[step % 3])
    psnr = -10.0 * torch.log(loss.detach()) / torch.log(torch.Tensor([10.0]))
    loss.backward()
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] = 5e-3 * (0.1 ** (step / 50))
    print(
        f"{step} {loss.item():.5f} {psnr.item():.4f} {z.std().item():.5f} {disparity.mean().item():.4f}"
    )
print([f"{p.grad.norm():.5f}" for p in fields[1].parameters()])
with torch.no_grad():
    chunks = [shade(fields, o, d)[1] for o, d in zip(*(t.split(8) for t in views[1]))]
    print("chunks", f"{torch.cat(chunks, 0).std():.5f}", len(chunks))


class Distance(nn.Module):
    """A signed distance that begins as that of a sphere."""

    def __init__(self):
        super().__init__()
        rng = np.random.RandomState(4)
        self.net = nn.Sequential(
            nn.Linear(3, 16),
            nn.Softplus(beta=20),
            nn.Linear(16, 16),
            nn.Softplus(beta=20),
            nn.Linear(16, 1),
        )
        for m in self.net:
            if isinstance(m, nn.Linear):
                m.weight.data.copy_(torch.from_numpy(rng.randn(*m.weight.shape) * 0.1))
                m.bias.data.fill_(0.0)

    def forward(self, x):
        return x.norm(dim=-1) - 0.6 + self.net(x).squeeze(-1)

    def gradient(self, x):
        x = x.requires_grad_(True)
        y = self(x)
        return torch.autograd.grad(
            y,
            x,
            torch.ones_like(y, requires_grad=False),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )[0]


surface = Distance()
optimizer = torch.optim.Adam(surface.parameters(), lr=1e-3)
cloud = F.normalize(
    torch.from_numpy(np.random.RandomState(5).randn(20, 3).astype(np.float32)), dim=-1
) * torch.tensor([0.7, 0.5, 0.6])
for step in range(3):
    normals = surface.gradient(torch.cat([cloud, cloud * 1.7]).detach().clone())
    eikonal = ((normals.norm(2, dim=-1) - 1) ** 2).mean()
    loss = surface(cloud).abs().mean() + 0.1 * eikonal
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(
        f"distance {step} {loss.item():.6f} {eikonal.item():.6f} {surface.net[0].weight.grad.norm().item():.6f}"
    )
o, d = views[0][0], F.normalize(views[0][1], dim=-1)
t, alive = torch.full((len(o),), 1.5), torch.ones(len(o), dtype=torch.bool)
with torch.no_grad():
    for _ in range(12):
        gap = surface(o + t[:, None] * d)
        t[alive] += gap[alive]
        alive &= (gap.abs() > 1e-3) & (t < 6)
print("traced", int((t < 6).sum()), f"{t[t < 6].mean():.4f}")
