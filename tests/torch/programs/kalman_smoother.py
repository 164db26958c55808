"""A Kalman filter with gaps, a Rauch-Tung-Striebel smoother, and noise learnt by the likelihood."""

import numpy as np
import torch

rng = np.random.RandomState(2)
T = 18
pos = np.cumsum(0.3 + 0.1 * rng.randn(T))
obs = torch.from_numpy((pos + 0.5 * rng.randn(T)).astype(np.float32))
seen = torch.tensor([t % 5 != 3 for t in range(T)])
A = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
H = torch.tensor([[1.0, 0.0]])
log_q = torch.zeros(2, requires_grad=True)
log_r = torch.zeros(1, requires_grad=True)
opt = torch.optim.Adam([log_q, log_r], lr=0.1)


def run():
    m, P = torch.zeros(2), torch.eye(2) * 4
    means, covs, preds, nll = [], [], [], torch.zeros(())
    Q, R = torch.diag(log_q.exp()), torch.diag(log_r.exp())
    for t in range(T):
        m, P = A @ m, A @ P @ A.T + Q
        preds.append((m, P))
        if seen[t]:
            S = H @ P @ H.T + R
            e = obs[t] - H @ m
            K = P @ H.T @ torch.inverse(S)
            nll = nll + 0.5 * (e.pow(2) / S.squeeze() + S.squeeze().log()).sum()
            m = m + (K @ e)
            P = (torch.eye(2) - K @ H) @ P
        means.append(m)
        covs.append(P)
    return nll, means, covs, preds


for step in range(5):
    nll, means, covs, preds = run()
    opt.zero_grad()
    nll.backward()
    opt.step()
    print(
        step,
        f"{nll.item():.4f} {log_q.grad.tolist()[0]:.4f} {log_r.grad.item():.4f} {log_r.item():.4f}",
    )
with torch.no_grad():
    _, means, covs, preds = run()
    s, V = means[-1], covs[-1]
    out = [s]
    for t in range(T - 2, -1, -1):
        mp, Pp = preds[t + 1]
        G = covs[t] @ A.T @ torch.linalg.inv(Pp)
        s = means[t] + G @ (s - mp)
        V = covs[t] + G @ (V - Pp) @ G.T
        out.insert(0, s)
    print([round(v, 3) for v in torch.stack(out)[:, 0].tolist()])
    print(round(V[0, 0].item(), 4))
