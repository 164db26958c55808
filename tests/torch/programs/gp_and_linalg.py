"""Gaussian processes by Cholesky with learned kernels, Bayesian regression, and linear algebra as numerical codes use it."""

import math

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(14)
X = torch.from_numpy(rng.uniform(-3, 3, (12, 1)))
y = torch.sin(X).squeeze(-1) + 0.1 * torch.from_numpy(rng.normal(size=12))
log_params = torch.tensor([0.0, 0.0, -2.0], requires_grad=True)


def rbf(a, b, ls, var):
    d2 = (a.unsqueeze(-2) - b.unsqueeze(-3)).pow(2).sum(-1)
    return var * torch.exp(-0.5 * d2 / ls**2)


def matern(a, b, ls, var):
    d = torch.cdist(a, b).clamp_min(1e-12) * math.sqrt(3) / ls
    return var * (1 + d) * torch.exp(-d)


def nll(log_params, kernel):
    ls, var, noise = log_params.exp()
    K = kernel(X, X, ls, var) + (noise + 1e-6) * torch.eye(len(X))
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y.unsqueeze(-1), L)
    return (
        0.5 * (y @ alpha.squeeze(-1))
        + L.diagonal().log().sum()
        + 0.5 * len(X) * math.log(2 * math.pi),
        L,
        alpha,
    )


for kernel in (rbf, matern):
    p = log_params.detach().clone().requires_grad_()
    opt = torch.optim.LBFGS([p], lr=0.5, max_iter=6, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss, *_ = nll(p, kernel)
        loss.backward()
        return loss

    for _ in range(2):
        loss = opt.step(closure)
    value, L, alpha = nll(p, kernel)
    Xs = torch.linspace(-3, 3, 5).unsqueeze(-1)
    Ks = kernel(X, Xs, *p.exp()[:2])
    v = torch.linalg.solve_triangular(L, Ks, upper=False)
    cov = kernel(Xs, Xs, *p.exp()[:2]) - v.T @ v
    mvn = torch.distributions.MultivariateNormal(
        (Ks.T @ alpha).squeeze(-1), cov + 1e-6 * torch.eye(5)
    )
    print(
        kernel.__name__,
        f"{loss.item():.5f} {value.item():.5f}",
        p.grad.norm() < 1,
        mvn.mean,
        mvn.stddev,
        mvn.log_prob(torch.zeros(5)),
    )
Phi = torch.cat([X**k for k in range(4)], 1)
S_inv = 2.0 * torch.eye(4) + Phi.T @ Phi / 0.1
m = torch.linalg.solve(S_inv, Phi.T @ y / 0.1)
print(m, torch.logdet(S_inv), torch.linalg.slogdet(-S_inv), torch.linalg.cond(S_inv))
A = torch.from_numpy(rng.normal(size=(5, 3)))
U, S, Vh = torch.linalg.svd(A, full_matrices=False)
print(
    S,
    torch.dist(U @ torch.diag(S) @ Vh, A) < 1e-10,
    torch.linalg.matrix_rank(A),
    (torch.linalg.pinv(A) @ A).trace(),
)
q, r = torch.linalg.qr(A)
print(
    (q.T @ q).trace(),
    r.diagonal().abs(),
    torch.linalg.lstsq(A, torch.ones(5, 1)).solution.flatten(),
)
B = A.T @ A
w, V = torch.linalg.eigh(B)
print(
    w,
    torch.allclose(V @ torch.diag(w) @ V.mT, B),
    torch.linalg.matrix_exp(B / 10).trace(),
    torch.linalg.inv(B).diagonal(),
)
B.requires_grad_()
f = (
    torch.linalg.eigvalsh(B)[-1]
    + torch.logdet(B)
    + torch.linalg.norm(B, ord="nuc")
    + torch.linalg.matrix_norm(B, ord=1)
    + B.trace()
)
f.backward()
print(f.item(), B.grad)
Q = torch.linalg.svdvals(B.detach())
print(
    Q,
    torch.linalg.vector_norm(A, ord=3),
    torch.linalg.norm(A, ord=float("inf")),
    torch.linalg.norm(A, "fro", dim=(0, 1)),
    A.norm(dim=1),
)
P, L, U = torch.linalg.lu(B.detach())
print(
    torch.allclose(P @ L @ U, B.detach()),
    torch.linalg.det(B.detach()),
    torch.linalg.multi_dot([A.T, A, B.detach()]).sum(),
)
x = torch.zeros(3)
r = torch.ones(3) - B.detach() @ x
d = r.clone()
for _ in range(3):
    a = r.dot(r) / (d @ B.detach() @ d)
    x = x.add(d, alpha=a.item())
    new = r - a * (B.detach() @ d)
    d = new + (new @ new) / (r @ r) * d
    r = new
print(x, torch.linalg.solve(B.detach(), torch.ones(3)), r.norm() < 1e-8)
v = torch.ones(3)
for _ in range(50):
    v = torch.mv(B.detach(), v)
    v /= v.norm()
print((v @ B.detach() @ v), torch.outer(v, v).trace(), torch.kron(torch.eye(2), torch.ones(1, 2)))
print(
    torch.linalg.cross(A[0], A[1]),
    torch.linalg.vecdot(A[0], A[1]),
    torch.tensordot(A, A, dims=([0], [0])).sum(),
    torch.einsum("ij,ik,i->jk", A, A, torch.ones(5))[0],
)
print(
    torch.cov(A.T)[0],
    torch.corrcoef(A.T)[0, 1],
    torch.quantile(A, torch.tensor([0.1, 0.5]), dim=0),
    torch.histc(A, 4, -2, 2),
    torch.trapezoid(y, X.squeeze()),
    torch.cumulative_trapezoid(torch.ones(3)),
)
print(
    torch.linalg.cholesky_ex(torch.eye(2)).info,
    torch.cholesky_inverse(torch.linalg.cholesky(B.detach())).trace(),
    torch.linalg.ldl_factor(B.detach()).pivots.shape,
)
try:
    torch.linalg.cholesky(-torch.eye(2))
except torch.linalg.LinAlgError as e:
    print("LinAlgError", isinstance(e, RuntimeError))
batch = torch.from_numpy(rng.normal(size=(2, 3, 3)))
print(
    torch.linalg.inv(batch).sum((1, 2)),
    torch.baddbmm(torch.zeros(2, 3, 3), batch, batch, alpha=0.5).sum(),
    torch.bmm(batch, batch.mT).diagonal(dim1=1, dim2=2).sum(1),
)
w2 = torch.distributions.Wishart(torch.tensor(5.0), covariance_matrix=torch.eye(2))
print(
    w2.mean,
    w2.variance,
    w2.log_prob(torch.tensor([[2.0, 0.3], [0.3, 1.0]])),
    w2.entropy(),
    w2.rsample((4,)).shape,
)
lkj = torch.distributions.LKJCholesky(3, 0.7)
L = torch.linalg.cholesky(torch.tensor([[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]]))
print(lkj.log_prob(L), lkj.sample().shape)
torch.set_default_dtype(torch.float32)
