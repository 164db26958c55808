"""Models of `transformers` of text, images and sound."""

import os

import torch
from shown import filled, step, wave

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 99,
}  # fmt: skip
TEXT = {
    "input_ids": torch.arange(16).reshape(2, 8),
    "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3]),
}
IMAGE = {"pixel_values": wave(2, 3, 32, 32)}
SOUND = {"input_values": wave(2, 2000)}
PATCHES = {"image_size": 32, "patch_size": 8}
MODELS = {
    "Bert": ({}, TEXT),
    "DebertaV2": ({"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TEXT),
    "ModernBert": ({"local_attention": 4, "pad_token_id": 0, "cls_token_id": 1}, TEXT),
    "ViT": (PATCHES, IMAGE),
    "Dinov2": (PATCHES, IMAGE),
    "ConvNext": ({"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, IMAGE),
    "Wav2Vec2": (
        {
            "conv_dim": [8, 8], "conv_stride": [5, 4], "conv_kernel": [10, 4],
            "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
        },
        SOUND,
    ),
}  # fmt: skip

for name, (options, inputs) in MODELS.items():
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **options})
    model = filled(getattr(transformers, f"{name}Model")(config)).eval()
    step(name, model, **inputs)
