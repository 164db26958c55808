"""PPO's clipped objective with an actor and a critic, several epochs over one batch."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

rng = np.random.default_rng(39)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.mu, self.value = nn.Linear(8, 2), nn.Linear(8, 1)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, s):
        h = self.body(s)
        return Normal(self.mu(h), self.log_std.exp().expand(len(s), 2)), self.value(h).squeeze(-1)


model = ActorCritic()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-5)
states = torch.from_numpy(rng.normal(size=(20, 3))).float()
actions = torch.from_numpy(rng.normal(size=(20, 2))).float()
rewards = -(actions - states[:, :2]).pow(2).sum(1)
with torch.no_grad():
    dist, values = model(states)
    old_log_prob = dist.log_prob(actions).sum(-1)
    advantage = rewards - values
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
for epoch in range(4):
    for index in torch.arange(20).split(10):
        dist, value = model(states[index])
        ratio = torch.exp(dist.log_prob(actions[index]).sum(-1) - old_log_prob[index])
        surrogate = torch.min(ratio * advantage[index], ratio.clamp(0.8, 1.2) * advantage[index])
        value_loss = (rewards[index] - value).pow(2).mean()
        entropy = dist.entropy().sum(-1).mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    print(f"{epoch} {loss.item():.5f} {ratio.mean().item():.5f} {entropy.item():.5f}")
