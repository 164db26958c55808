"""A network and schedules of `diffusers`."""

import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DModel,
)
from shown import filled, show, step, wave

model = filled(
    UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=4, attention_head_dim=8,
    ),
    0.05,
)  # fmt: skip
x = wave(1, 3, 16, 16)
step("network", model, x, torch.tensor([5]))
for kind in (DDIMScheduler, EulerDiscreteScheduler, DPMSolverMultistepScheduler):
    schedule = kind(num_train_timesteps=100)
    schedule.set_timesteps(4)
    sample = x
    for time in schedule.timesteps[:-1]:
        with torch.no_grad():
            noise = model(schedule.scale_model_input(sample, time), time).sample * 0.1
        sample = schedule.step(noise, time, sample).prev_sample
    show(kind.__name__, sample)
