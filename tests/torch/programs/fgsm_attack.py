"""Fast gradient sign attacks: the data gradient, accuracy against epsilon, a targeted and an iterated attack."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
rng = np.random.default_rng(1)
epsilons = [0, 0.05, 0.1, 0.2]
device = torch.device("cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 6, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(6 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc1(x), dim=1)


mean, std = torch.tensor([0.1307]), torch.tensor([0.3081])


def denorm(batch, mean=mean, std=std):
    return batch * std.view(1, -1, 1, 1) + mean.view(1, -1, 1, 1)


def normalize(batch):
    return (batch - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1)


def fgsm_attack(image, epsilon, data_grad):
    sign_data_grad = data_grad.sign()
    perturbed_image = image + epsilon * sign_data_grad
    return torch.clamp(perturbed_image, 0, 1)


model = Net().to(device)
for p in model.parameters():
    p.data = torch.as_tensor(rng.normal(0, 0.2, p.shape), dtype=torch.float32)
model.eval()
pixels = torch.from_numpy(rng.uniform(0, 1, (12, 1, 12, 12)).astype(np.float32))
with torch.no_grad():
    labels = model(normalize(pixels)).argmax(1)
labels[::5] = (labels[::5] + 1) % 10
loader = DataLoader(TensorDataset(normalize(pixels), labels), batch_size=1, shuffle=False)


def test(model, loader, epsilon):
    correct, adv_examples = 0, []
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        data.requires_grad = True
        output = model(data)
        init_pred = output.max(1, keepdim=True)[1]
        if init_pred.item() != target.item():
            continue
        loss = F.nll_loss(output, target)
        model.zero_grad()
        loss.backward()
        data_grad = data.grad.data
        perturbed = fgsm_attack(denorm(data), epsilon, data_grad)
        output = model(normalize(perturbed))
        final_pred = output.max(1, keepdim=True)[1]
        if final_pred.item() == target.item():
            correct += 1
        elif len(adv_examples) < 5:
            adv_ex = perturbed.squeeze().detach().cpu().numpy()
            adv_examples.append((init_pred.item(), final_pred.item(), adv_ex))
    final_acc = correct / float(len(loader))
    print(f"Epsilon: {epsilon}\tTest Accuracy = {correct} / {len(loader)} = {final_acc:.3f}")
    return final_acc, adv_examples


for eps in epsilons:
    acc, ex = test(model, loader, eps)
    print([(a, b, round(float(e.mean()), 4)) for a, b, e in ex])
x = pixels[:4].clone()
delta = torch.zeros_like(x, requires_grad=True)
opt = torch.optim.SGD([delta], lr=0.5)
target = torch.tensor([3, 1, 4, 1])
for _ in range(4):
    loss = F.cross_entropy(model(normalize(x + delta)), target)
    opt.zero_grad()
    loss.backward()
    delta.grad.detach().div_(delta.grad.flatten(1).norm(dim=1).view(-1, 1, 1, 1) + 1e-12)
    opt.step()
    delta.data.clamp_(-0.1, 0.1)
    print(f"{loss.item():.5f} {delta.abs().max().item():.5f} {delta.norm().item():.5f}")
