"""Deep Q-learning with a replay memory, a target network and soft updates."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
rng = np.random.default_rng(17)
random.seed(17)


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(3, 10), nn.Linear(10, 2)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


policy_net, target_net = DQN(), DQN()
for p in policy_net.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
target_net.load_state_dict(policy_net.state_dict())
target_net.eval()
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
memory = deque(maxlen=100)
for i in range(40):
    s, s2 = (torch.tensor(rng.normal(size=(1, 3)), dtype=torch.float32) for _ in range(2))
    memory.append(
        Transition(
            s,
            torch.tensor([[int(rng.integers(2))]]),
            None if i % 7 == 0 else s2,
            torch.tensor([rng.normal()], dtype=torch.float32),
        )
    )
for step in range(4):
    batch = Transition(*zip(*random.sample(memory, 16)))
    non_final = torch.tensor(tuple(s is not None for s in batch.next_state), dtype=torch.bool)
    next_states = torch.cat([s for s in batch.next_state if s is not None])
    values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    next_values = torch.zeros(16)
    with torch.no_grad():
        next_values[non_final] = target_net(next_states).max(1).values
    expected = next_values * 0.9 + torch.cat(batch.reward)
    loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
    for key in policy_state:
        target_state[key] = policy_state[key] * 0.1 + target_state[key] * 0.9
    target_net.load_state_dict(target_state)
    print(f"{step} {loss.item():.5f} {target_net.layer2.bias.sum().item():.5f}")
