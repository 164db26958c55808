"""Modules imported by their long names, one-hot dtypes, parameters that are pickled, a child that is no module."""

import pickle

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import Function, once_differentiable
from torch.utils.data.distributed import DistributedSampler


class Round(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g


x = torch.tensor([0.2, 0.7], requires_grad=True)
(Round.apply(x) * torch.tensor([1.0, 2.0])).sum().backward()
print(x.grad, torch.autograd.Function is Function)
print(F.one_hot(torch.tensor([0, 2]), 3).dtype, F.one_hot(torch.tensor([0, 2])))
sampler = DistributedSampler(range(10), num_replicas=3, rank=1, shuffle=False)
print(list(sampler), len(sampler))
linear = nn.Linear(2, 2)
nn.init.constant_(linear.weight, 0.5)
again = pickle.loads(pickle.dumps(linear))
print(again.weight, [name for name, _ in again.named_parameters()])
print(pickle.loads(pickle.dumps(torch.arange(3))))
net = nn.Sequential(nn.Linear(1, 1), nn.Conv2d(1, 2, 3, padding="same"))
net.child = nn.Identity()
try:
    net.child = 3
except TypeError as error:
    print(error)
print(net, list(net._forward_hooks), nn.MultiheadAttention(8, 2).head_dim)
