"""All kinds of hooks: forward, pre, kwargs, always called, full backward, tensor, post accumulate, state dict and load hooks, global hooks, feature extraction, Grad-CAM."""

from collections import OrderedDict, defaultdict
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(23)


def values(*shape):
    return torch.from_numpy(rng.normal(0, 0.5, shape).astype(np.float32))


model = nn.Sequential(
    OrderedDict(
        [
            ("conv", nn.Conv2d(1, 3, 3)),
            ("act", nn.ReLU()),
            ("pool", nn.AdaptiveAvgPool2d(2)),
            ("flat", nn.Flatten()),
            ("head", nn.Linear(12, 4)),
        ]
    )
)
for p in model.parameters():
    p.data = values(*p.shape)
x = values(2, 1, 6, 6)
log = []
handles = [
    model.conv.register_forward_pre_hook(
        lambda m, args: log.append(("pre", tuple(args[0].shape))) or (args[0] * 2,)
    ),
    model.act.register_forward_hook(
        lambda m, i, o: log.append(("fwd", round(o.mean().item(), 4))) or o + 1
    ),
    model.head.register_full_backward_pre_hook(
        lambda m, g: log.append(("bwd_pre", tuple(g[0].shape)))
    ),
    model.head.register_full_backward_hook(
        lambda m, gi, go: log.append(("bwd", round(gi[0].norm().item(), 4))) or (gi[0] * 0.5,)
    ),
    model.pool.register_full_backward_hook(
        lambda m, gi, go: log.append(("pool", tuple(gi[0].shape), round(go[0].norm().item(), 4)))
    ),
]
model(x).square().sum().backward()
for each in log:
    print(each)
print(f"{model.conv.weight.grad.norm():.5f}")
for h in handles:
    h.remove()


class WithKwargs(nn.Module):
    def forward(self, a, *, scale=1.0, flag=False):
        return a * scale


kw = WithKwargs()
kw.register_forward_pre_hook(
    lambda m, args, kwargs: (args, {**kwargs, "scale": 3.0}), with_kwargs=True
)
kw.register_forward_hook(
    lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True, prepend=True
)
print(kw(torch.ones(2), scale=2.0))
t = values(3).requires_grad_()
u = (t * 2).sigmoid()
u.retain_grad()
first = u.register_hook(lambda g: g * 10)
u.register_hook(lambda g: print("second", g))
t.register_hook(lambda g: g.clamp(-1, 1))
u.sum().backward()
print(t.grad, u.grad)
first.remove()
p = nn.Parameter(torch.ones(3))
opt = torch.optim.SGD([p], lr=0.1)


def step_in_backward(param):
    opt.step()
    opt.zero_grad()


p.register_post_accumulate_grad_hook(step_in_backward)
(p * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(p, p.grad)
features = defaultdict(list)


def save(name, module, inputs, output):
    features[name].append(output.detach())


handles = [
    m.register_forward_hook(partial(save, n))
    for n, m in model.named_modules()
    if not list(m.children())
]
model(x)
model(-x)
print({k: [tuple(v[0].shape), len(v)] for k, v in features.items()})
for h in handles:
    h.remove()
acts = {}
h1 = model.act.register_forward_hook(lambda m, i, o: acts.update(value=o))
h2 = model.act.register_full_backward_hook(lambda m, gi, go: acts.update(grad=go[0]))
model.zero_grad()
score = model(x)
score[torch.arange(2), score.argmax(1)].sum().backward()
cam = F.relu((acts["grad"].mean((2, 3), keepdim=True) * acts["value"]).sum(1, keepdim=True))
cam = F.interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)
cam = (cam - cam.amin((2, 3), keepdim=True)) / (
    cam.amax((2, 3), keepdim=True) - cam.amin((2, 3), keepdim=True) + 1e-8
)
print(cam.shape, f"{cam.mean():.5f}")
h1.remove(), h2.remove()


class Versioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0]))
        self._register_load_state_dict_pre_hook(self._rename)

    def _rename(self, state_dict, prefix, *args):
        if prefix + "gain" in state_dict:
            state_dict[prefix + "scale"] = state_dict.pop(prefix + "gain")

    def get_extra_state(self):
        return {"version": 2}

    def set_extra_state(self, state):
        print("extra", state)


holder = nn.ModuleDict({"inner": Versioned()})
holder.register_state_dict_post_hook(
    lambda m, sd, prefix, meta: sd.update({"note": torch.tensor(1)})
)
print(sorted(holder.state_dict()))
state = {"inner.gain": torch.tensor([5.0]), "inner._extra_state": {"version": 1}}
print(holder.load_state_dict(state), holder["inner"].scale)
print(holder.load_state_dict({"nope": torch.ones(1)}, strict=False))
seen = []
handles = [
    m.register_forward_hook(lambda m, i, o: seen.append(type(m).__name__)) for m in model.modules()
]
model(x)
for h in handles:
    h.remove()
print(seen)
