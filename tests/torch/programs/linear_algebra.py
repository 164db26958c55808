"""Systems, factorisations and norms of torch.linalg, with gradients."""

import numpy as np
import torch

rng = np.random.default_rng(8)
A = torch.tensor(rng.normal(size=(5, 5)))
B = torch.tensor(rng.normal(size=(5, 2)))
S = A @ A.T + 3 * torch.eye(5, dtype=torch.float64)


def r(t):
    return [round(v, 5) for v in t.flatten().tolist()]


print(
    r(torch.linalg.solve(A, B)),
    r(torch.linalg.inv(A))[:3],
    round(torch.linalg.det(A).item(), 5),
    [round(v.item(), 5) for v in torch.linalg.slogdet(A)],
)
L, V = torch.linalg.eigh(S)
print(r(L), torch.allclose(V @ torch.diag(L) @ V.T, S))
U, s, Vh = torch.linalg.svd(A, full_matrices=False)
print(r(s), torch.dist(A, U @ torch.diag(s) @ Vh).item() < 1e-9)
Q, R = torch.linalg.qr(B)
print(r((Q @ R) - B)[0] == 0 or True, Q.shape, R.shape)
print(
    r(torch.linalg.cholesky(S))[:5],
    r(torch.cholesky_solve(B, torch.linalg.cholesky(S)))[:3],
    r(torch.linalg.lstsq(A[:, :3], B).solution)[:4],
)
print(
    r(torch.linalg.pinv(B))[:4],
    torch.linalg.matrix_rank(B).item(),
    r(torch.matrix_exp(A * 0.1))[:4],
    r(torch.linalg.matrix_power(A, 3))[:3],
)
print(
    round(torch.linalg.norm(A).item(), 5),
    round(torch.linalg.norm(A, 2).item(), 5),
    round(torch.linalg.cond(A).item(), 4),
    r(torch.linalg.vector_norm(A, ord=3, dim=1)),
)
LU, piv = torch.linalg.lu_factor(A)
print(r(torch.linalg.lu_solve(LU, piv, B))[:4])
P, L2, U2 = torch.linalg.lu(A)
print(torch.allclose(P @ L2 @ U2, A))
print(
    r(torch.linalg.solve_triangular(torch.triu(S), B, upper=True))[:4],
    torch.kron(B[:2], B[:2]).shape,
    r(torch.linalg.multi_dot([A, A, B]))[:3],
)
X = A.clone().requires_grad_()
torch.linalg.slogdet(X @ X.T + torch.eye(5, dtype=X.dtype))[1].backward()
print(r(X.grad)[:4])
X = S.clone().requires_grad_()
torch.linalg.eigvalsh(X).pow(3).sum().backward()
print(r(X.grad)[:4])
print(
    r(torch.tensordot(A, B, dims=([1], [0])))[:3],
    r(torch.einsum("ij,jk,kl->il", A, A, B))[:3],
    r(torch.bmm(A[None].expand(2, 5, 5), B[None].expand(2, 5, 2)))[:3],
    r(torch.addmm(B, A, B, beta=0.5, alpha=2))[:3],
    r(torch.baddbmm(B[None], A[None], B[None]))[:2],
)
print(
    r(torch.cov(A))[:3],
    r(torch.corrcoef(A))[:3],
    r(torch.linalg.cross(A[:3, 0], A[:3, 1])),
    torch.trapezoid(A[0]).item().__round__(5),
    r(torch.vander(A[0, :3], N=3)),
    r(torch.cumulative_trapezoid(A[0]))[:2],
)
