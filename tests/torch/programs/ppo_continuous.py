"""Proximal policy optimisation of a Gaussian policy: clipped ratios, minibatches by BatchSampler, early stop by KL, running normalisation."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import MultivariateNormal, Normal
from torch.utils.data.sampler import BatchSampler, SequentialSampler, SubsetRandomSampler

rng = np.random.default_rng(8)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = torch.zeros(shape), torch.ones(shape), 1e-4

    def update(self, x):
        bm, bv, bc = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        delta, tot = bm - self.mean, self.count + bc
        self.mean = self.mean + delta * bc / tot
        m2 = self.var * self.count + bv * bc + delta**2 * self.count * bc / tot
        self.var, self.count = m2 / tot, tot

    def __call__(self, x):
        return ((x - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-5, 5)


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    layer.weight.data = torch.tensor(rng.normal(0, 0.3, layer.weight.shape), dtype=torch.float)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 1), std=1.0)
        )
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 2), std=0.01)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action):
        action_mean = self.actor_mean(x)
        action_logstd = self.actor_logstd.expand_as(action_mean)
        probs = Normal(action_mean, torch.exp(action_logstd))
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-2, eps=1e-5)
norm = RunningMeanStd((3,))
raw = torch.from_numpy(rng.normal(1, 3, (16, 3))).float()
norm.update(raw)
b_obs = norm(raw)
b_actions = torch.from_numpy(rng.normal(size=(16, 2))).float()
with torch.no_grad():
    _, b_logprobs, _, b_values = agent.get_action_and_value(b_obs, b_actions)
b_values = b_values.flatten()
b_advantages = torch.from_numpy(rng.normal(size=16)).float()
b_returns = b_advantages + b_values
clip_coef, clipfracs = 0.2, []
for update in range(2):
    frac = 1.0 - update / 2
    optimizer.param_groups[0]["lr"] = frac * 2.5e-2
    for mb_inds in BatchSampler(SequentialSampler(range(16)), batch_size=8, drop_last=True):
        _, newlogprob, entropy, newvalue = agent.get_action_and_value(
            b_obs[mb_inds], b_actions[mb_inds]
        )
        logratio = newlogprob - b_logprobs[mb_inds]
        ratio = logratio.exp()
        with torch.no_grad():
            old_approx_kl = (-logratio).mean()
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfracs += [((ratio - 1.0).abs() > clip_coef).float().mean().item()]
        mb_advantages = b_advantages[mb_inds]
        mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
        pg_loss1 = -mb_advantages * ratio
        pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        newvalue = newvalue.view(-1)
        v_loss_unclipped = (newvalue - b_returns[mb_inds]) ** 2
        v_clipped = b_values[mb_inds] + torch.clamp(
            newvalue - b_values[mb_inds], -clip_coef, clip_coef
        )
        v_loss = 0.5 * torch.max(v_loss_unclipped, (v_clipped - b_returns[mb_inds]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        print(
            f"{update} {pg_loss.item():.5f} {v_loss.item():.5f} {entropy.mean():.5f} kl {approx_kl.item():.6f} {old_approx_kl:.6f}"
        )
y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
print(f"{1 - np.var(y_true - y_pred) / np.var(y_true):.5f} {np.mean(clipfracs):.4f}")
cov = torch.diag(torch.full(size=(2,), fill_value=0.5))
dist = MultivariateNormal(agent.actor_mean(b_obs), cov)
print(dist.log_prob(b_actions).mean().item(), dist.entropy()[0].item())
print(
    len(list(SubsetRandomSampler(range(5)))),
    sorted(sum(BatchSampler(SubsetRandomSampler(range(5)), 2, False), [])),
)
