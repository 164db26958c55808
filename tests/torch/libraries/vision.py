"""Models and transforms of `torchvision`, without its compiled operations."""

import torch
import torchvision.models as models
import torchvision.transforms.functional as functional
from shown import filled, show, step, wave
from torchvision.transforms import v2
from torchvision.utils import make_grid

step("resnet18", filled(models.resnet18(num_classes=10), 0.03).eval(), wave(1, 3, 32, 32))
transformer = models.VisionTransformer(
    image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
)
step("vision transformer", filled(transformer).eval(), wave(1, 3, 32, 32))
windows = models.SwinTransformer(
    patch_size=[2, 2], embed_dim=8, depths=[1, 2], num_heads=[2, 2], window_size=[4, 4],
    num_classes=5,
)  # fmt: skip
step("swin", filled(windows).eval(), wave(1, 3, 32, 32))
image = (wave(3, 20, 24) + 1) / 2
show(
    "functional", functional.resize(image, [10, 12], antialias=True),
    functional.rotate(image, 30.0), functional.adjust_hue(image, 0.1),
    functional.gaussian_blur(image, [3, 3]), functional.affine(image, 10, [1, 2], 1.1, [3.0, 4.0]),
)  # fmt: skip
transform = v2.Compose(
    [
        v2.ToDtype(torch.float32, scale=True), v2.Resize((12, 12)), v2.CenterCrop(8),
        v2.Normalize([0.5] * 3, [0.2] * 3),
    ]
)  # fmt: skip
show("v2", transform((image * 255).to(torch.uint8)))
show("grid", make_grid(image[None].repeat(4, 1, 1, 1), nrow=2))
