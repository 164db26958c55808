"""Residual networks, with torchvision's names: weights saved from there load here.

    model = ResNet(18)
    load_state_dict(model, safe_load("resnet18.safetensors"))
    scores = model(images)            # (N, 3, H, W) to (N, 1000)

He et al., "Deep Residual Learning for Image Recognition" (2015); the stride of a bottleneck block
is in its 3x3 convolution, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad import Tensor, nn

Layer = Callable[[Tensor], Tensor]


def convolution(channels: int, to: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Without a bias, as a normalisation follows."""
    return nn.Conv2d(channels, to, size, stride, padding=size // 2, bias=False)


def shortcut(channels: int, to: int, stride: int) -> list[Layer]:
    """What brings the input of a block to the shape of its result; nothing where it has it."""
    if stride == 1 and channels == to:
        return []
    return [convolution(channels, to, 1, stride), nn.BatchNorm(to)]


class Block:
    """Two 3x3 convolutions beside the shortcut."""

    widening = 1

    def __init__(self, channels: int, width: int, stride: int):
        self.conv1, self.bn1 = convolution(channels, width, 3, stride), nn.BatchNorm(width)
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm(width)
        self.downsample = shortcut(channels, width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        return (y + x.sequential(self.downsample)).relu()


class Bottleneck:
    """1x1 to a quarter of the channels, 3x3, and 1x1 back, beside the shortcut."""

    widening = 4

    def __init__(self, channels: int, width: int, stride: int):
        self.conv1, self.bn1 = convolution(channels, width, 1), nn.BatchNorm(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm(width)
        self.conv3, self.bn3 = convolution(width, 4 * width, 1), nn.BatchNorm(4 * width)
        self.downsample = shortcut(channels, 4 * width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return (y + x.sequential(self.downsample)).relu()


# The block, and how many of it each stage has.
KINDS: dict[int, tuple[type[Block | Bottleneck], tuple[int, ...]]] = {
    18: (Block, (2, 2, 2, 2)),
    34: (Block, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
}


class ResNet:
    """`depth` is 18, 34, 50 or 101; `width` that of the first stage, 64 in the paper."""

    def __init__(self, depth: int, classes: int = 1000, width: int = 64):
        kind, counts = KINDS[depth]
        self.conv1, self.bn1 = convolution(3, width, 7, stride=2), nn.BatchNorm(width)
        channels = width
        stages: list[list[Layer]] = []
        for number, count in enumerate(counts):
            blocks: list[Layer] = []
            for place in range(count):
                stride = 2 if number and not place else 1
                blocks.append(kind(channels, width << number, stride))
                channels = kind.widening * (width << number)
            stages.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(channels, classes)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu().max_pool2d(3, 2, padding=1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = x.sequential(stage)
        return self.fc(x.mean((2, 3)))
