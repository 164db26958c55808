"""Advantage actor-critic with generalised advantages, entropy bonus and a batch of environments in NumPy."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

rng = np.random.default_rng(44)


class LineWorld:
    """Agents on a line that should reach 0."""

    def __init__(self, n):
        self.x = rng.normal(0, 2, n).astype(np.float32)
        self.t = np.zeros(n, dtype=np.int64)

    def observe(self):
        return np.stack([self.x, np.abs(self.x), np.sign(self.x)], 1).astype(np.float32)

    def step(self, actions):
        self.x = (self.x + 0.5 * (actions - 1)).astype(np.float32)
        self.t += 1
        reward = -np.abs(self.x)
        done = (np.abs(self.x) < 0.3) | (self.t >= 5)
        self.x[done] = rng.normal(0, 2, int(done.sum()))
        self.t[done] = 0
        return self.observe(), reward.astype(np.float32), done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(OrderedDict([("fc", nn.Linear(3, 16)), ("act", nn.Tanh())]))
        self.actor = nn.Linear(16, 3)
        self.critic = nn.Linear(16, 1)
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, gain=2**0.5)
            module.weight.data.copy_(
                torch.from_numpy(rng.normal(0, 0.3, tuple(module.weight.shape)))
            )
            nn.init.zeros_(module.bias)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


model = ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-3, alpha=0.99, eps=1e-5)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=3)
envs, T, N, gamma, lam = LineWorld(4), 6, 4, 0.95, 0.9
obs = torch.as_tensor(envs.observe())
for update in range(3):
    storage = {k: torch.zeros(T, N) for k in ("logp", "value", "reward", "mask", "entropy")}
    for t in range(T):
        dist, value = model(obs)
        action = torch.multinomial(dist.probs, 1).squeeze(1)
        action = torch.from_numpy(
            np.array(
                [rng.choice(3, p=p / p.sum()) for p in dist.probs.detach().numpy().astype(float)]
            )
        )
        new_obs, reward, done = envs.step(action.numpy())
        storage["logp"][t] = dist.log_prob(action)
        storage["entropy"][t] = dist.entropy()
        storage["value"][t] = value
        storage["reward"][t] = torch.from_numpy(reward)
        storage["mask"][t] = 1.0 - torch.from_numpy(done).float()
        obs = torch.from_numpy(new_obs)
    with torch.no_grad():
        _, last = model(obs)
    advantages, gae = torch.zeros(T, N), 0.0
    for t in reversed(range(T)):
        following = storage["value"][t + 1] if t < T - 1 else last
        delta = storage["reward"][t] + gamma * following * storage["mask"][t] - storage["value"][t]
        gae = delta.detach() + gamma * lam * storage["mask"][t] * gae
        advantages[t] = gae
    returns = advantages + storage["value"].detach()
    adv = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy_loss = -(storage["logp"] * adv.detach()).mean()
    value_loss = 0.5 * (returns - storage["value"]).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * storage["entropy"].mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    total = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    optimizer.step()
    schedule.step()
    print(
        f"{update} {policy_loss.item():+.5f} {value_loss.item():.5f} {total.item():.5f} {schedule.get_last_lr()[0]:.2e}"
    )
with torch.no_grad():
    old = Categorical(torch.tensor([[0.2, 0.3, 0.5]]).expand(4, 3))
    print(kl_divergence(old, model(obs)[0]).mean())
    print(kl_divergence(Normal(0.0, 1.0), Normal(torch.tensor([1.0, 2.0]), 2.0)))
