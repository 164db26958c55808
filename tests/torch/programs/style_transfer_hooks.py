"""Style and content losses put into a network as layers, LBFGS on the pixels; then the same by forward hooks."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(21)
torch.set_default_device("cpu")


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        G = gram_matrix(input)
        self.loss = F.mse_loss(G, self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = nn.Sequential(
    nn.Conv2d(3, 4, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.Conv2d(4, 4, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Conv2d(4, 6, 3, padding=1),
    nn.ReLU(inplace=True),
).eval()
for p in cnn.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
style_img, content_img = (
    torch.from_numpy(rng.uniform(size=(1, 3, 8, 8))).float() for _ in range(2)
)


def get_style_model_and_losses(
    cnn, style_img, content_img, content_layers=("conv_2",), style_layers=("conv_1", "conv_2")
):
    normalization = Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    content_losses, style_losses = [], []
    model = nn.Sequential(normalization)
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = f"conv_{i}"
        elif isinstance(layer, nn.ReLU):
            name = f"relu_{i}"
            layer = nn.ReLU(inplace=False)
        elif isinstance(layer, nn.MaxPool2d):
            name = f"pool_{i}"
        else:
            raise RuntimeError(f"Unrecognized layer: {layer.__class__.__name__}")
        model.add_module(name, layer)
        if name in content_layers:
            content_loss = ContentLoss(model(content_img).detach())
            model.add_module(f"content_loss_{i}", content_loss)
            content_losses.append(content_loss)
        if name in style_layers:
            style_loss = StyleLoss(model(style_img).detach())
            model.add_module(f"style_loss_{i}", style_loss)
            style_losses.append(style_loss)
    for i in range(len(model) - 1, -1, -1):
        if isinstance(model[i], ContentLoss) or isinstance(model[i], StyleLoss):
            break
    model = model[: (i + 1)]
    return model, style_losses, content_losses


model, style_losses, content_losses = get_style_model_and_losses(
    copy.deepcopy(cnn), style_img, content_img
)
print(model)
input_img = content_img.clone()
input_img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img], max_iter=5)
run = [0]
while run[0] <= 8:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = 0
        content_score = 0
        for sl in style_losses:
            style_score += sl.loss
        for cl in content_losses:
            content_score += cl.loss
        style_score *= 1000
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        if run[0] % 3 == 0:
            print(
                f"run {run}: Style Loss : {style_score.item():4f} Content Loss: {content_score.item():4f}"
            )
        return style_score + content_score

    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
print(f"{input_img.mean():.5f}")

features = {}
handles = [
    layer.register_forward_hook(
        lambda m, args, out, name=name: features.__setitem__(name, gram_matrix(out.clone()))
    )
    for name, layer in cnn.named_children()
    if isinstance(layer, nn.Conv2d)
]
cnn(style_img)
wanted = {k: v.detach() for k, v in features.items()}
pixels = nn.Parameter(content_img.clone())
loss = sum(F.mse_loss(features[k], wanted[k]) for k in wanted if cnn(pixels) is not None)
loss.backward()
print(f"{loss.item():.7f} {pixels.grad.norm():.7f}", sorted(wanted))
for handle in handles:
    handle.remove()
features.clear()
cnn(style_img)
print(len(features))
torch.set_default_device(None)
