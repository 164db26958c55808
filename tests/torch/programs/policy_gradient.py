"""REINFORCE on a bandit: actions come from NumPy, log-probabilities from Categorical."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

rng = np.random.default_rng(16)
policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
for p in policy.parameters():
    nn.init.constant_(p, 0.0)
    p.data.add_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape)).astype("float32")))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
eps = np.finfo(np.float32).eps.item()
for episode in range(4):
    log_probs, rewards = [], []
    for _ in range(6):
        state = torch.from_numpy(rng.normal(size=4)).float().unsqueeze(0)
        m = Categorical(logits=policy(state))
        share = m.probs.detach().numpy()[0]
        action = torch.tensor([int(np.searchsorted(share.cumsum(), rng.random() * 0.999))])
        log_probs.append(m.log_prob(action))
        rewards.append(float(action.item() == int(state[0, 0] > 0)))
    R, returns = 0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    loss = torch.cat([-lp * g for lp, g in zip(log_probs, returns)]).sum()
    entropy = m.entropy().mean()
    optimizer.zero_grad()
    (loss - 0.01 * entropy).backward()
    optimizer.step()
    print(f"{episode} {sum(rewards):.1f} {loss.item():.4f} {entropy.item():.4f}")
