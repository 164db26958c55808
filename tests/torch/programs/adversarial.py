"""The fast gradient sign method: the gradient of an input."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(38)
model = nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 4))
model.load_state_dict(
    {
        k: torch.tensor(rng.normal(0, 0.5, tuple(v.shape)), dtype=torch.float32)
        for k, v in model.state_dict().items()
    }
)
model.eval()


def fgsm_attack(image, epsilon, data_grad):
    return torch.clamp(image + epsilon * data_grad.sign(), 0, 1)


data = torch.tensor(rng.random((12, 1, 4, 4)), dtype=torch.float32)
target = model(data).max(1, keepdim=True)[1].squeeze(1)
for epsilon in (0.0, 0.05, 0.2, 0.5):
    data.requires_grad = True
    loss = F.nll_loss(F.log_softmax(model(data), dim=1), target)
    model.zero_grad()
    data.grad = None
    loss.backward()
    perturbed = fgsm_attack(data, epsilon, data.grad.data)
    final = model(perturbed).max(1)[1]
    print(epsilon, (final == target).sum().item(), f"{(perturbed - data).abs().max().item():.4f}")
x = data.detach()[:2].clone()
for _ in range(3):
    x.requires_grad_()
    loss = F.cross_entropy(model(x), target[:2])
    grad = torch.autograd.grad(loss, [x])[0]
    x = x.detach() + 0.1 * torch.sign(grad.detach())
    x = torch.min(torch.max(x, data[:2] - 0.2), data[:2] + 0.2).detach()
print(f"{F.cross_entropy(model(x), target[:2]).item():.4f}")
