"""Principal components by SVD and by eigenvectors; whitening; a low-rank approximation."""

import numpy as np
import torch

rng = np.random.default_rng(20)
X = torch.tensor(rng.normal(size=(50, 5)) @ rng.normal(size=(5, 5)), dtype=torch.float64)
X = X - X.mean(dim=0, keepdim=True)
U, S, Vh = torch.linalg.svd(X, full_matrices=False)
print(S.tolist())
explained = S**2 / (S**2).sum()
print(explained.cumsum(0).tolist())
cov = X.T @ X / (X.shape[0] - 1)
print(torch.allclose(cov, torch.cov(X.T)))
eigenvalues, eigenvectors = torch.linalg.eigh(cov)
print(torch.flip(eigenvalues, (0,)).tolist())
projection = X @ Vh[:2].T
print(projection.abs().sum(0).tolist(), tuple(projection.shape))
rank2 = (U[:, :2] * S[:2]) @ Vh[:2]
print(torch.linalg.norm(X - rank2).item(), torch.linalg.matrix_rank(rank2).item())
white = X @ eigenvectors / eigenvalues.sqrt()
print(torch.allclose(white.T @ white / 49, torch.eye(5, dtype=torch.float64), atol=1e-6))
A = cov + torch.eye(5)
L = torch.linalg.cholesky(A)
print((L @ L.mT - A).abs().max().item() < 1e-9, torch.logdet(A).item())
sign, logdet = torch.linalg.slogdet(A)
print(sign.item(), logdet.item(), torch.det(A).item())
b = torch.arange(5, dtype=torch.float64)
print(torch.linalg.solve(A, b).tolist())
Q, R = torch.linalg.qr(X)
print(Q.shape, R.diagonal().abs().tolist())
print(torch.linalg.pinv(X).shape, torch.linalg.cond(A).item(), torch.trace(A).item())
