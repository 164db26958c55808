"""REINFORCE with a baseline on a chain of states, seeded by Python's random."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


import random
from collections import namedtuple

from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])
random.seed(3)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 16)
        self.action_head = nn.Linear(16, 2)
        self.value_head = nn.Linear(16, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model = init(Policy())
optimizer = optim.Adam(model.parameters(), lr=3e-2)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    state = torch.from_numpy(state).float()
    probs, state_value = model(state)
    m = Categorical(probs)
    action = torch.tensor(int(random.random() < probs[1].item()))
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item()


def finish_episode():
    R, saved_actions, policy_losses, value_losses, returns = 0, model.saved_actions, [], [], []
    for r in model.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for (log_prob, value), R in zip(saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


for i_episode in range(5):
    position, ep_reward = 1, 0
    for t in range(1, 12):
        state = np.eye(4)[position]
        action = select_action(state)
        position = max(0, min(3, position + (1 if action else -1)))
        reward = 1.0 if position == 3 else -0.1
        model.rewards.append(reward)
        ep_reward += reward
        if position == 3:
            position = 0
    print(i_episode, f"{ep_reward:.2f} {finish_episode():.4f} {grad_norm(model):.4f}")
probs, value = model(torch.eye(4))
print(probs.detach().numpy().round(3).tolist(), Categorical(probs).entropy().mean().item() > 0)
