"""Modules in lists and dicts, by name, printed, changed, and what they refuse."""

from collections import OrderedDict

import torch
import torch.nn as nn


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.choices = nn.ModuleDict({"conv": nn.Conv2d(10, 10, 3), "pool": nn.MaxPool2d(3)})
        self.activations = nn.ModuleDict([["lrelu", nn.LeakyReLU()], ["prelu", nn.PReLU()]])
        self.params = nn.ParameterList(
            [nn.Parameter(torch.full((2, 2), float(i))) for i in range(3)]
        )
        self.named = nn.ParameterDict(
            {"left": nn.Parameter(torch.ones(2, 3)), "right": nn.Parameter(torch.zeros(3))}
        )
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.layers.append(nn.Linear(4, 1, bias=False))
        self.layers.insert(0, nn.Identity())
        self.layers.extend([nn.ReLU(inplace=True), nn.Dropout(p=0.2)])
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.register_parameter("nothing", None)

    def forward(self, x, choice, act):
        x = self.choices[choice](x)
        return self.activations[act](x)


m = Multi()
print(m)
for name, p in m.named_parameters():
    print(name, tuple(p.shape), p.requires_grad)
for name, b in m.named_buffers():
    print(name, b)
for name, c in m.named_children():
    print(name, type(c).__name__)
for name, c in m.named_modules():
    print(repr(name), c.__class__.__name__)
print(list(m.state_dict().keys()))
print(m.params, len(m.params), m.params[1])
print(m.named, "left" in m.named, list(m.named.keys()))
print(m.named["left"].sum())
print(m.choices.keys(), list(m.choices.values())[1])
print(len(m.layers), m.layers[1:3], m.layers[-1])
del m.layers[0]
print(m.layers)
s = nn.Sequential(
    OrderedDict([("first", nn.Linear(3, 4)), ("act", nn.GELU()), ("out", nn.Linear(4, 2))])
)
print(s, s[0], s.first is s[0], len(s))
s = nn.Sequential(*s)
s.insert(1, nn.Tanh())
s.append(nn.Softmax(dim=-1))
print(s)
print(s[:2])
s[1] = nn.Sigmoid()
print(s[1])
s.add_module("extra", nn.Flatten(1))
print(s.get_submodule("extra"), s.extra)
del s[-1]
print(sum(p.numel() for p in s.parameters()))
print(m.get_parameter("named.left").shape, m.get_buffer("mean").shape)
try:
    m.get_submodule("absent.thing")
except AttributeError:
    print("AttributeError")
try:
    m.absent
except AttributeError as e:
    print(e)
try:
    m.layers["x"]
except Exception as e:
    print(type(e).__name__)
try:
    m.layers[99]
except IndexError:
    print("IndexError")
try:
    m.register_buffer("mean.x", torch.ones(1))
except KeyError as e:
    print(e)
try:
    m.register_parameter("choices", nn.Parameter(torch.ones(1)))
except KeyError as e:
    print(e)
try:
    m.named_thing = nn.Parameter(torch.ones(1))
    m.named_thing = torch.ones(2)
except TypeError as e:
    print(e)
try:
    nn.Module.__call__(object())
except Exception as e:
    print(type(e).__name__)


class NoForward(nn.Module):
    pass


try:
    NoForward()(1)
except NotImplementedError:
    print("NotImplementedError")


def init(mod):
    if isinstance(mod, nn.Linear):
        nn.init.constant_(mod.weight, 0.5)
        if mod.bias is not None:
            mod.bias.data.fill_(0.01)


s.apply(init)
print(s(torch.ones(1, 3)))
s.requires_grad_(False)
print([p.requires_grad for p in s.parameters()])
s.train()
print(s.training, s[0].training)
s.eval()
print(s.training, s[0].training)
s.double()
print(s[0].weight.dtype)
s.half()
print(s[0].weight.dtype)
s.float()
print(next(s.parameters()).dtype)
s.to(torch.float64)
print(next(s.parameters()).dtype)
s.to("cpu", torch.float32)
print(next(s.parameters()).device)
print(nn.Linear(2, 3).extra_repr(), "|", nn.Conv2d(1, 2, 3, padding=1, bias=False).extra_repr())
