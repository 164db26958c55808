"""Factorizations as programs use them: LU with pivots, solves, updates, polar factors, sketches."""

import torch

A = torch.tensor([[2.0, 1.0, 1.0], [4.0, 3.0, 3.0], [8.0, 7.0, 9.0]])
b = torch.tensor([[1.0], [2.0], [5.0]])
LU, piv = torch.linalg.lu_factor(A)
print(LU, piv, piv.dtype)
print(torch.linalg.lu_solve(LU, piv, b), torch.lu_solve(b, LU, piv).flatten())
P, L, U = torch.linalg.lu(A)
print(P, (P @ L @ U).allclose(A))
print(torch.linalg.lu(A)[1])
batch = torch.stack([A, A.T + torch.eye(3), A.flip(0)])
LUb, pb = torch.linalg.lu_factor(batch)
print(pb, LUb.shape, torch.linalg.lu_factor_ex(batch).info)
C = torch.linalg.cholesky(A @ A.T)
print(torch.cholesky_solve(b, C).flatten(), torch.cholesky_inverse(C).diag())
Q, R = torch.linalg.qr(A)
print((Q @ R).allclose(A, atol=1e-5), R.diag().abs())
w, V = torch.linalg.eigh(A @ A.T)
print(w)
U2, S, Vh = torch.linalg.svd(A)
print(S, (U2 @ Vh).det().abs().item() - 1 < 1e-5)
print(
    torch.linalg.lstsq(A[:, :2], b).solution.flatten(),
    torch.linalg.matrix_rank(A),
    torch.linalg.cond(A),
)
print(torch.linalg.slogdet(A), torch.logdet(A @ A.T).item())
x = torch.linalg.solve_triangular(A.triu(), b, upper=True)
print(x.flatten(), torch.linalg.multi_dot([A, A, b]).flatten())
print(torch.linalg.matrix_exp(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])), torch.linalg.inv(A) @ b)
print(torch.linalg.vander(torch.tensor([1.0, 2.0, 3.0])))
LD, pivots = torch.linalg.ldl_factor(A @ A.T)
print(torch.linalg.ldl_solve(LD, pivots, b).flatten())
leaf = A.clone().requires_grad_()
(torch.linalg.lu_solve(*torch.linalg.lu_factor(leaf), b).sum() + torch.linalg.det(leaf)).backward()
print(leaf.grad)
