"""A small convolutional network with batch normalisation and dropout switched off."""

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(2)
images = rng.normal(size=(48, 1, 12, 12)).astype(np.float32)
labels = rng.integers(0, 4, 48)
for image, label in zip(images, labels):
    image[0, label * 3 : label * 3 + 3] += 1.5


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, kernel_size=3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((2, 2)),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(p=0.0), nn.Linear(32, 4))

    def forward(self, x):
        return self.classifier(self.features(x))


model = ConvNet()
with torch.no_grad():
    for name, p in model.named_parameters():
        value = rng.normal(0, 0.3, tuple(p.shape)).astype(np.float32)
        p.copy_(torch.from_numpy(value) + (1.0 if name == "features.1.weight" else 0.0))

loader = DataLoader(
    TensorDataset(torch.from_numpy(images), torch.from_numpy(labels)), batch_size=16, shuffle=False
)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(4):
    running = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running += loss.item() * inputs.size(0)
    print(f"epoch {epoch}: {running / len(loader.dataset):.4f}")

model.eval()
correct = 0
with torch.no_grad():
    for inputs, targets in loader:
        _, predicted = torch.max(model(inputs), 1)
        correct += (predicted == targets).sum().item()
print("correct", correct)
print("running mean", model.features[1].running_mean.numpy().round(4).tolist())
print("batches", int(model.features[1].num_batches_tracked))
print(sum(p.numel() for p in model.parameters() if p.requires_grad))
