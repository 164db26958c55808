"""The quickstart and the tensor tutorial, as a beginner writes them."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PATH = os.path.join(tempfile.mkdtemp(), "model.pth")
np.random.seed(0)
x = np.random.randn(200, 28, 28).astype("float32")
y = (x.mean(axis=(1, 2)) > 0).astype("int64")
training_data = TensorDataset(torch.from_numpy(x[:160]), torch.from_numpy(y[:160]))
test_data = TensorDataset(torch.from_numpy(x[160:]), torch.from_numpy(y[160:]))
train_dataloader = DataLoader(training_data, batch_size=64)
test_dataloader = DataLoader(test_data, batch_size=64)
for X, y in test_dataloader:
    print(f"Shape of X [N, H, W]: {X.shape}")
    print(f"Shape of y: {y.shape} {y.dtype}")
    break
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
print(f"Using {device} device")


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def forward(self, x):
        x = self.flatten(x)
        logits = self.linear_relu_stack(x)
        return logits


model = NeuralNetwork().to(device)
print(model)
with torch.no_grad():
    for i, p in enumerate(model.parameters()):
        p.copy_(
            torch.from_numpy(
                np.random.RandomState(i).uniform(-0.05, 0.05, tuple(p.shape)).astype("float32")
            )
        )
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = (X.to(device), y.to(device))
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 1 == 0:
            loss, current = (loss.item(), (batch + 1) * len(X))
            print(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")


def test(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    num_batches = len(dataloader)
    model.eval()
    test_loss, correct = (0, 0)
    with torch.no_grad():
        for X, y in dataloader:
            X, y = (X.to(device), y.to(device))
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    test_loss /= num_batches
    correct /= size
    print(f"Test Error: \n Accuracy: {100 * correct:>0.1f}%, Avg loss: {test_loss:>8f} \n")


epochs = 3
for t in range(epochs):
    print(f"Epoch {t + 1}\n-------------------------------")
    train(train_dataloader, model, loss_fn, optimizer)
    test(test_dataloader, model, loss_fn)
torch.save(model.state_dict(), PATH)
model = NeuralNetwork().to(device)
print(model.load_state_dict(torch.load(PATH, weights_only=True)))
classes = ["neg", "pos"]
model.eval()
x, y = (test_data[0][0], test_data[0][1])
with torch.no_grad():
    x = x.to(device)
    pred = model(x.unsqueeze(0))
    predicted, actual = (classes[pred[0].argmax(0)], classes[y])
    print(f'Predicted: "{predicted}", Actual: "{actual}"')
data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
x_ones = torch.ones_like(x_data)
print(f"Ones Tensor: \n {x_ones} \n")
t = torch.arange(16.0).reshape(4, 4)
print(f"First row: {t[0]}\nFirst column: {t[:, 0]}\nLast column: {t[..., -1]}")
t[:, 1] = 0
print(t)
t1 = torch.cat([t, t, t], dim=1)
print(t1)
y1 = t @ t.T
y3 = torch.empty_like(y1)
torch.matmul(t, t.T, out=y3)
print(y3)
z3 = torch.zeros_like(t)
torch.mul(t, t, out=z3)
print(z3)
agg = t.sum()
print(agg.item(), type(agg.item()))
x = torch.ones(5)
y = torch.zeros(3)
w = torch.full((5, 3), 0.1, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(f"Gradient function for z = {z.grad_fn.name()}", type(loss.grad_fn).__name__)
loss.backward()
print(w.grad, b.grad)
inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True)
print(f"First call\n{inp.grad}")
out.backward(torch.ones_like(out), retain_graph=True)
print(inp.grad)
inp.grad.zero_()
out.backward(torch.ones_like(out))
print(inp.grad)
