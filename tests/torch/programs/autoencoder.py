"""A denoising autoencoder with tied weights, trained with LBFGS."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(13)


class TiedAutoencoder(nn.Module):
    def __init__(self, size, code):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(code, size))
        self.bias_in = nn.Parameter(torch.zeros(code))
        self.bias_out = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        code = torch.tanh(F.linear(x, self.weight, self.bias_in))
        return F.linear(code, self.weight.t(), self.bias_out)


model = TiedAutoencoder(6, 3)
with torch.no_grad():
    model.weight.copy_(torch.from_numpy(rng.normal(0, 0.4, (3, 6))))
basis = rng.normal(size=(2, 6))
clean = torch.tensor(rng.normal(size=(30, 2)) @ basis * 0.3, dtype=torch.float32)
noisy = clean + 0.05 * torch.tensor(rng.normal(size=(30, 6)), dtype=torch.float32)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=5)
for step in range(4):

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(noisy), clean)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"{step} {loss.item():.5f}")
print(sorted(dict(model.named_parameters())))
