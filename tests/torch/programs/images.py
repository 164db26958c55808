"""Images resampled, sampled, padded, pooled, normalised; losses of maps."""

import torch
import torch.nn as nn
import torch.nn.functional as F

x = torch.sin(torch.arange(2 * 3 * 8 * 8.0)).reshape(2, 3, 8, 8)
for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    for kw in (dict(scale_factor=2), dict(size=(5, 11)), dict(size=4)):
        k = dict(kw, mode=mode)
        print(mode, kw, F.interpolate(x, **k)[0, 0, 1, :4])
for mode in ("bilinear", "bicubic"):
    print(
        F.interpolate(x, size=(5, 3), mode=mode, align_corners=True)[1, 2, 1],
        F.interpolate(x, size=(3, 5), mode=mode, antialias=True)[0, 1, 1],
        F.interpolate(x, scale_factor=0.4, mode=mode, antialias=True)[0, 1, 1],
        F.interpolate(x, scale_factor=(1.5, 0.5), mode=mode, recompute_scale_factor=True)[0, 0, 0],
        F.interpolate(x, scale_factor=1.7, mode=mode)[0, 0, 0, :3],
        F.interpolate(x, size=(16, 3), mode=mode, antialias=True)[0, 1, 5],
    )
print(
    F.interpolate(x[:, :, 0], scale_factor=2, mode="linear")[0, 0],
    F.interpolate(x[:, :, None], size=(2, 3, 3), mode="trilinear")[0, 0, 0],
    F.upsample(x, scale_factor=2).shape,
)
theta = torch.tensor([[[1.0, 0.2, 0.1], [0.0, 0.9, -0.2]]]).repeat(2, 1, 1)
for ac in (True, False):
    grid = F.affine_grid(theta, (2, 3, 4, 4), align_corners=ac)
    print(grid[0, 0])
    for mode in ("bilinear", "nearest"):
        for pm in ("zeros", "border", "reflection"):
            print(
                mode,
                pm,
                F.grid_sample(x, grid, mode=mode, padding_mode=pm, align_corners=ac)[0, 0, 0],
            )
for mode in ("constant", "reflect", "replicate", "circular"):
    print(mode, F.pad(x, (1, 2, 3, 1), mode=mode)[0, 0, 0])
print(
    F.unfold(x, 3, padding=1, stride=2).shape,
    F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2).allclose(x),
    F.pixel_shuffle(torch.arange(16.0).reshape(1, 4, 2, 2), 2),
    F.pixel_unshuffle(x, 2).shape,
    F.channel_shuffle(x[:, :2], 2).shape,
)
v, i = F.max_pool2d(x, 2, return_indices=True)
print(
    i[0, 0],
    F.max_unpool2d(v, i, 2)[0, 0, :2],
    F.max_pool2d(x, 3, 2, 1, ceil_mode=True).shape,
    F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)[0, 0],
    F.avg_pool2d(x, 3, divisor_override=2)[0, 0, 0, :2],
    F.adaptive_avg_pool2d(x, (3, 5))[0, 0],
    F.lp_pool2d(x, 2, 2)[0, 0, 0],
)
conv = nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3, padding_mode="circular")
nn.init.constant_(conv.weight, 0.1)
nn.init.constant_(conv.bias, 0.2)
print(
    conv(x)[0, :, 0, 0],
    F.conv2d(x, torch.ones(2, 3, 3, 3), padding="same")[0, 0, 0],
    F.conv2d(x, torch.ones(2, 3, 3, 3), padding="valid", dilation=2).shape,
    F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2, output_padding=1, groups=1).shape,
    F.conv3d(x[None], torch.ones(1, 2, 1, 2, 2)).shape,
)
for n in (
    nn.BatchNorm2d(3),
    nn.InstanceNorm2d(3, affine=True),
    nn.GroupNorm(3, 3),
    nn.LayerNorm([3, 8, 8]),
    nn.LocalResponseNorm(2),
    nn.SyncBatchNorm(3) if False else nn.Identity(),
):
    print(n(x)[0, 1, 0, :3])
bn = nn.BatchNorm2d(3, momentum=None)
bn(x)
bn(x * 2)
print(bn.running_mean, bn.running_var, bn.num_batches_tracked)
bn.eval()
print(bn(x)[0, 0, 0, :2])
bn.reset_running_stats()
print(bn.running_var)
tgt = torch.randint(0, 3, (2, 8, 8), generator=torch.Generator().manual_seed(0)) * 0 + 1
print(
    F.cross_entropy(x, tgt),
    F.cross_entropy(
        x, tgt, weight=torch.tensor([1.0, 2.0, 3.0]), ignore_index=0, label_smoothing=0.1
    ),
    F.nll_loss(F.log_softmax(x, 1), tgt, reduction="none").shape,
    F.cross_entropy(x, F.softmax(x, 1)),
    F.binary_cross_entropy_with_logits(x[:, 0], tgt.float(), pos_weight=torch.tensor(2.0)),
    F.one_hot(tgt, 3).permute(0, 3, 1, 2).shape,
    F.huber_loss(x, x * 2),
    F.smooth_l1_loss(x, x * 3, beta=0.5),
    F.l1_loss(x, -x),
    F.kl_div(F.log_softmax(x, 1), F.softmax(x * 2, 1), reduction="batchmean"),
    F.soft_margin_loss(x, torch.sign(x)),
    F.multi_margin_loss(x[0, :, 0], torch.tensor([0, 1, 2])),
    F.multilabel_margin_loss(torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([[3, 0, -1, 1]])),
    F.multilabel_soft_margin_loss(x[0, 0], (x[0, 1] > 0).float()),
    F.gaussian_nll_loss(x, x * 2, torch.ones_like(x)),
    F.triplet_margin_loss(x[0, 0], x[0, 1], x[0, 2]),
    F.cosine_similarity(x[0, 0], x[0, 1], dim=1),
    F.normalize(x[0, 0], dim=1)[0],
    F.gumbel_softmax(x[0, 0], hard=True).sum(1),
    F.threshold(x, 0.1, 5)[0, 0, 0],
    F.hardswish(x)[0, 0, 0, :3],
    F.mish(x)[0, 0, 0, :3],
    F.glu(x[..., :8], -1).shape,
    F.softmin(x, 1)[0, :, 0, 0],
    F.elu(x, 0.5)[0, 0, 0, :4],
    F.rrelu(x, training=False)[0, 0, 0, :5],
    F.logsigmoid(x)[0, 0, 0, :3],
    F.pdist(x[0, 0])[:3],
    F.bilinear(x[0, 0], x[0, 1], torch.ones(2, 8, 8))[0],
    F.embedding(torch.tensor([1]), torch.eye(3)),
    F.local_response_norm(x, 2)[0, 0, 0, :2],
    F.celu(x)[0, 0, 0, :5],
    F.softsign(x)[0, 0, 0, :3],
    F.tanhshrink(x)[0, 0, 0, :3],
    F.poisson_nll_loss(x, x.abs()),
    F.margin_ranking_loss(x, -x, torch.ones_like(x)),
    F.hinge_embedding_loss(x, torch.sign(x)),
    sep="\n",
)
iou = lambda a, b: (
    (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0).prod(2)
)
print(iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 1, 3, 3], [5, 5, 6, 6]])))
mean, std = torch.tensor([0.5] * 3).view(3, 1, 1), torch.tensor([0.2] * 3)[:, None, None]
print(
    ((x - mean) / std).mean((0, 2, 3)),
    x.std(dim=(0, 2, 3), unbiased=False),
    x.amax((2, 3))[0],
    x.flatten(2).median(-1).values[0],
    x.permute(0, 2, 3, 1).contiguous().shape,
    x.to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last),
    x.view(2, -1).argmax(1),
    torch.histc(x, 4, -1, 1),
    (x * 255).clamp(0, 255).to(torch.uint8)[0, 0, 0],
    x.quantile(0.25),
    x.var(0).sum(),
    x.unique().numel() > 10,
)
