"""Gradients: of vectors, through detach, no_grad and in-place changes; Jacobians and Hessians."""

import torch
from torch.autograd.functional import hessian, jacobian

x = torch.ones(5)
y = torch.zeros(3)
w = torch.linspace(-1, 1, 15).view(5, 3).requires_grad_()
b = torch.zeros(3, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
loss.backward()
print(w.grad[0].tolist(), b.grad.tolist())
print(z.requires_grad, z.detach().requires_grad, w.is_leaf, z.is_leaf)
with torch.no_grad():
    print((torch.matmul(x, w) + b).requires_grad)
inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True)
print(inp.grad[0].tolist())
out.backward(torch.ones_like(out), retain_graph=True)
print(inp.grad[0].tolist())
inp.grad.zero_()
out.backward(torch.ones_like(out))
print(inp.grad[0].tolist())
v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(g,) = torch.autograd.grad((v**3).sum(), v, create_graph=True)
(h,) = torch.autograd.grad(g.sum(), v)
print(g.tolist(), h.tolist(), g.requires_grad, h.requires_grad)
print(torch.autograd.grad(v.sum(), [v, w], allow_unused=True)[1])
u = torch.tensor([1.0, -2.0], requires_grad=True)
t = u * 2
t[0] = t[0] * 10
t.mul_(3)
t.sum().backward()
print(u.grad.tolist())
print(jacobian(lambda q: q**2 + q.sum(), torch.tensor([1.0, 2.0])).tolist())
print(hessian(lambda q: (q**3).sum() + q[0] * q[1], torch.tensor([1.0, 2.0])).tolist())
c = torch.tensor(2.0, requires_grad=True)
d = c.clone().detach()
e = (c * d).exp()
e.backward()
print(c.grad.item(), d.requires_grad)
f = torch.tensor([3.0], requires_grad=True)
(f.clamp(0, 1) * 2 + f.relu() + f.abs().sqrt()).backward()
print(f.grad.item())
