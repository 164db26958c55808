"""Solvers written with tensors: Gauss-Newton and Levenberg-Marquardt by jacfwd, conjugate
gradients and GMRES without matrices, Lanczos, the rest of torch.linalg, each with gradients.
"""

import numpy as np
import torch
from torch import linalg as LA
from torch.func import jacfwd, jacrev, jvp, vjp, vmap

torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(0)
tensor = lambda *s: torch.from_numpy(rng.randn(*s))


def model(p, t):
    return p[0] * torch.exp(-p[1] * t) * torch.cos(p[2] * t + p[3])


def levenberg_marquardt(residual, p, steps=12, damping=1e-2):
    history = []
    for _ in range(steps):
        r, j = residual(p), jacfwd(residual)(p)
        a, g = j.T @ j, j.T @ r
        while True:
            delta = LA.solve(a + damping * torch.diag(a.diagonal()), -g)
            new = p + delta
            if residual(new).square().sum() < r.square().sum() or damping > 1e8:
                p, damping = new, damping / 3
                break
            damping *= 2
        history.append(r.square().sum().item())
        if delta.norm() < 1e-10:
            break
    return p, history


t = torch.linspace(0, 4, 40)
truth = torch.tensor([2.0, 0.5, 3.0, 0.4])
data = model(truth, t) + 0.05 * tensor(40)
p, history = levenberg_marquardt(lambda q: model(q, t) - data, torch.tensor([1.0, 0.3, 2.7, 0.0]))
print("fit", [f"{v:.5f}" for v in p.tolist()], [f"{h:.5f}" for h in history[:6]])
j = jacrev(model)(p, t)
covariance = LA.inv(j.mT @ j) * 0.05**2
print("errors", [f"{v:.6f}" for v in covariance.diag().sqrt().tolist()])
many = vmap(lambda q: (model(q, t) - data).square().sum())(p + 0.01 * tensor(5, 4))
print("near", [f"{v:.5f}" for v in many.tolist()])


def conjugate_gradient(matvec, b, tol=1e-10, steps=50):
    x = torch.zeros_like(b)
    r = b - matvec(x)
    d, rr = r.clone(), r.dot(r)
    for k in range(steps):
        ad = matvec(d)
        alpha = rr / d.dot(ad)
        x = x.add(d, alpha=alpha.item())
        r = torch.sub(r, ad, alpha=float(alpha))
        new = torch.dot(r, r)
        if new.sqrt() < tol:
            break
        d, rr = r + new / rr * d, new
    return x, k + 1


def gmres(matvec, b, m):
    n = b.numel()
    q, h = torch.zeros(n, m + 1), torch.zeros(m + 1, m)
    beta = LA.vector_norm(b)
    q[:, 0] = b / beta
    for k in range(m):
        v = matvec(q[:, k])
        for i in range(k + 1):
            h[i, k] = q[:, i] @ v
            v = v - h[i, k] * q[:, i]
        h[k + 1, k] = v.norm()
        if h[k + 1, k] < 1e-12:
            m = k + 1
            break
        q[:, k + 1] = v / h[k + 1, k]
    e1 = torch.zeros(m + 1, 1)
    e1[0] = beta
    y = LA.lstsq(h[: m + 1, :m], e1).solution
    return (q[:, :m] @ y)[:, 0]


x0 = tensor(6)
loss = lambda x: (x**4).sum() / 4 + (x[1:] - x[:-1]).square().sum() + x.dot(x)
gradient = torch.func.grad(loss)
hvp = lambda v: jvp(gradient, (x0,), (v,))[1]
b = gradient(x0)
step, count = conjugate_gradient(hvp, b)
hessian = torch.autograd.functional.hessian(loss, x0)
print("newton", count, torch.allclose(hessian @ step, b), f"{step.norm():.6f}")
g = gmres(lambda v: vjp(lambda y: torch.tanh(y) * y.flip(0) + 3 * y, x0)[1](v)[0], b, 6)
jac = jacrev(lambda y: torch.tanh(y) * y.flip(0) + 3 * y)(x0)
print("gmres", torch.allclose(jac.T @ g, b), f"{g.norm():.6f}")


def lanczos(a, v, m):
    basis, alphas, betas = [v / v.norm()], [], []
    for i in range(m):
        w = a @ basis[-1]
        alphas.append(w @ basis[-1])
        for u in basis:
            w = w - (w @ u) * u
        betas.append(w.norm())
        basis.append(w / betas[-1])
    return (
        torch.diag(torch.stack(alphas))
        + torch.diag(torch.stack(betas[:-1]), 1)
        + torch.diag(torch.stack(betas[:-1]), -1)
    )


a = tensor(12, 12)
s = (a @ a.mT / 12).requires_grad_()
tri = lanczos(s.detach(), torch.ones(12), 12)
print(
    "lanczos",
    torch.allclose(LA.eigvalsh(tri), LA.eigvalsh(s.detach()), atol=1e-6),
    f"{tri[0, 0]:.5f}",
)


def slope(name, value, *leaves):
    value = value.real if value.is_complex() else value
    weights = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape)
    grads = torch.autograd.grad((value * weights).sum(), leaves)
    print(
        name,
        tuple(value.shape),
        f"{value.sum().item():.5f}",
        [f"{g.norm().item():.5f}" for g in grads],
    )


m = (tensor(4, 4) + 3 * torch.eye(4)).requires_grad_()
batch = (tensor(2, 3, 3) + 2 * torch.eye(3)).requires_grad_()
rhs = tensor(4, 2).requires_grad_()
slope("inv_ex", LA.inv_ex(m).inverse, m)
slope("solve_ex", LA.solve_ex(m, rhs)[0], m, rhs)
slope("left", LA.solve(m, rhs.mT, left=False), m, rhs)
slope("tensorinv", LA.tensorinv(m.reshape(2, 2, 4), ind=2), m)
slope("tensorsolve", LA.tensorsolve(m.reshape(2, 2, 4), rhs[:, 0].reshape(2, 2)), m, rhs)
lu, pivots = LA.lu_factor(m)
slope("lu_solve", LA.lu_solve(lu, pivots, rhs), m, rhs)
P, L, U = LA.lu(batch)
slope("lu", L @ U, batch)
slope("slogdet", LA.slogdet(batch).logabsdet, batch)
slope("det", LA.det(batch), batch)
slope("matrix_power", LA.matrix_power(m, -2), m)
slope("multi_dot", LA.multi_dot([rhs.mT, m, rhs]), m, rhs)
slope("pinv", LA.pinv(rhs), rhs)
slope("nuclear", LA.norm(m, "nuc"), m)
slope("spectral", LA.matrix_norm(batch, ord=2), batch)
slope("qr", LA.qr(rhs).R.abs(), rhs)
slope("cholesky", LA.cholesky(s + torch.eye(12)), s)
slope("eigvalsh", LA.eigvalsh(s), s)
slope("svdvals", LA.svdvals(rhs), rhs)
slope("expm", torch.matrix_exp(0.3 * m), m)
slope("triangular", LA.solve_triangular(m.tril(), rhs, upper=False, unitriangular=True), m, rhs)
slope("cross", LA.cross(batch[0], batch[1], dim=-1), batch)
slope("vander", LA.vander(rhs[:, 0], N=3), rhs)
slope("vecdot", LA.vecdot(batch[0], batch[1]), batch)
slope("householder", LA.householder_product(m[:, :2], torch.tensor([0.5, 1.5])), m)
slope("cov", torch.cov(m, correction=0), m)
slope("corrcoef", torch.corrcoef(m), m)
slope("cdist", torch.cdist(m, rhs.mT, p=1.5), m, rhs)
slope("trapezoid", torch.trapezoid(m, dx=0.5), m)
slope("logdet", torch.logdet(s + torch.eye(12)), s)
ldl, pivots = LA.ldl_factor((m + m.mT).detach())
print("ldl", torch.allclose((m + m.mT) @ LA.ldl_solve(ldl, pivots, rhs.detach()), rhs))
print("rank", LA.matrix_rank(rhs @ rhs.mT).item(), LA.matrix_rank(torch.eye(3)[None]).tolist())
values, vectors = LA.eig(m.detach())
print("eig", torch.allclose(vectors @ torch.diag(values) @ LA.inv(vectors), m.to(torch.complex128)))
info = LA.cholesky_ex(-torch.eye(2)).info
print("info", info.item(), info.dtype)
try:
    LA.cholesky(-torch.eye(2))
except LA.LinAlgError as error:
    print(type(error).__mro__[1].__name__)
try:
    LA.inv(torch.zeros(3, 3))
except RuntimeError as error:
    print("singular" in str(error))


def sylvester(a, b, c):
    n, k = a.size(0), b.size(0)
    system = torch.kron(torch.eye(k), a) + torch.kron(b.T.contiguous(), torch.eye(n))
    return LA.solve(system, c.T.reshape(-1)).reshape(k, n).T


x = sylvester(m, batch[0], tensor(4, 3))
slope("sylvester", x, m, batch)
value, vector = torch.lobpcg(s.detach(), k=1, X=torch.ones(12, 1))
print("lobpcg", torch.allclose(value, LA.eigvalsh(s.detach())[-1:], rtol=1e-4))
torch.set_default_dtype(torch.float32)
