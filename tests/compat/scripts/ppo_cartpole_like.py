# Policy optimisation as in a cart-pole script: an actor-critic with fused heads, TinyJit steps over
# a replay of one fixed size, gathered log-probabilities, entropy, and arguments by keyword.


import numpy as np
from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import trange


class ActorCritic:
    def __init__(self, in_features, out_features, hidden_state=16):
        self.l1 = nn.Linear(in_features, hidden_state)
        self.l2 = nn.Linear(hidden_state, out_features)
        self.c1 = nn.Linear(in_features, hidden_state)
        self.c2 = nn.Linear(hidden_state, 1)

    def __call__(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.l1(obs).tanh()
        act = self.l2(x).log_softmax()
        x = self.c1(obs).relu()
        return act, self.c2(x)


class Pole:
    def __init__(self):
        self.rng = np.random.default_rng(4)

    def reset(self):
        self.x, self.t = self.rng.normal(0, 0.3, 3), 0
        return self.x.astype(np.float32)

    def step(self, action):
        self.x = self.x * 1.05 + np.array([0.2, 0.1, 0.05]) * (1 if action else -1)
        self.t += 1
        return self.x.astype(np.float32), 1.0 - abs(float(self.x[0])), self.t >= 8


Tensor.manual_seed(9)
env, model = Pole(), ActorCritic(3, 2)
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-2)


@TinyJit
def train_step(
    x: Tensor, selected_action: Tensor, reward: Tensor, old_log_dist: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with Tensor.train():
        log_dist, value = model(x)
        action_mask = (
            selected_action.reshape(-1, 1)
            == Tensor.arange(log_dist.shape[1]).reshape(1, -1).expand(selected_action.shape[0], -1)
        ).float()
        advantage = reward.reshape(-1, 1) - value
        masked_advantage = action_mask * advantage.detach()
        ratios = (log_dist - old_log_dist).exp()
        unclipped_ratio = masked_advantage * ratios
        clipped_ratio = masked_advantage * ratios.clip(1 - 0.2, 1 + 0.2)
        action_loss = -unclipped_ratio.minimum(clipped_ratio).sum(-1).mean()
        entropy_loss = (log_dist.exp() * log_dist).sum(-1).mean()
        critic_loss = advantage.square().mean()
        opt.zero_grad()
        (action_loss + entropy_loss * 0.0005 + critic_loss).backward()
        opt.step()
        return action_loss.realize(), entropy_loss.realize(), critic_loss.realize()


@TinyJit
def get_action(obs: Tensor) -> Tensor:
    ret = model(obs)[0].exp().multinomial().realize()
    return ret


Xn, An, Rn = [], [], []
critics = []
for _episode in (t := trange(6)):
    obs, rews, done = env.reset(), [], False
    while not done:
        act = get_action(Tensor(obs)).item()
        Xn.append(np.copy(obs))
        An.append(act)
        obs, rew, done = env.step(act)
        rews.append(float(rew))
    for i in range(len(rews)):
        Rn.append(sum(r * 0.99**k for k, r in enumerate(rews[i:])))
    Xn, An, Rn = Xn[-16:], An[-16:], Rn[-16:]
    if len(Xn) < 16:
        continue
    X, A, R = Tensor(np.array(Xn)), Tensor(np.array(An, np.int32)), Tensor(np.array(Rn, np.float32))
    old_log_dist = model(X)[0].detach().realize()
    for _ in range(4):
        action_loss, entropy_loss, critic_loss = train_step(X, A, R, old_log_dist)
    critics.append(critic_loss.item())
    t.set_description(f"critic {critics[-1]:.3f} entropy {entropy_loss.item():.3f}")
assert set(An) <= {0, 1} and np.isfinite(critics).all() and len(critics) == 5
log_dist, _ = model(X)
picked = log_dist.gather(1, A.reshape(-1, 1)).numpy()
assert np.allclose(picked[:, 0], log_dist.numpy()[np.arange(16), np.array(An)])
assert A.dtype == dtypes.int32
checked = 3
