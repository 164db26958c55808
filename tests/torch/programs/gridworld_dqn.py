"""A double DQN with a target network on a small gridworld."""

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
from collections import deque, namedtuple

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 32)
        self.layer2 = nn.Linear(32, n_actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


random.seed(0)
policy_net = init(DQN(2, 4))
target_net = DQN(2, 4)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
memory = ReplayMemory(500)
GAMMA, TAU, BATCH = 0.95, 0.05, 16
moves = [(0, 1), (0, -1), (1, 0), (-1, 0)]


def optimize_model():
    if len(memory) < BATCH:
        return None
    batch = Transition(*zip(*memory.sample(BATCH)))
    non_final_mask = torch.tensor(
        tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool
    )
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = (
        torch.cat(batch.state),
        torch.cat(batch.action),
        torch.cat(batch.reward),
    )
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH)
    with torch.no_grad():
        chosen = policy_net(non_final_next_states).argmax(1, keepdim=True)
        next_state_values[non_final_mask] = (
            target_net(non_final_next_states).gather(1, chosen).squeeze(1)
        )
    expected = (next_state_values * GAMMA) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss


for episode in range(4):
    pos, total, last = (0, 0), 0.0, None
    for t in range(12):
        state = torch.tensor([pos], dtype=torch.float32) / 3
        if random.random() > 0.5:
            with torch.no_grad():
                action = policy_net(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[random.randrange(4)]], dtype=torch.long)
        dx, dy = moves[action.item()]
        pos = (min(3, max(0, pos[0] + dx)), min(3, max(0, pos[1] + dy)))
        done = pos == (3, 3)
        reward = torch.tensor([1.0 if done else -0.05])
        total += reward.item()
        memory.push(
            state, action, None if done else torch.tensor([pos], dtype=torch.float32) / 3, reward
        )
        loss = optimize_model()
        last = None if loss is None else round(loss.item(), 4)
        target, policy = target_net.state_dict(), policy_net.state_dict()
        for key in policy:
            target[key] = policy[key] * TAU + target[key] * (1 - TAU)
        target_net.load_state_dict(target)
        if done:
            break
    print(episode, round(total, 2), last, f"{target_net.layer1.weight.sum().item():.4f}")
