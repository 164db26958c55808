"""Language models of `transformers`: loss, gradients, and greedy text with a cache."""

import os

import torch
from shown import filled, show

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MODELS = {
    "GPT2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64},
    "Llama": {"num_key_value_heads": 2},
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 4},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8},
    "Mixtral": {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "GPTNeoX": {"max_position_embeddings": 64},
}
ids = torch.tensor([[1, 5, 7, 9, 2, 44, 3, 8], [4, 5, 6, 7, 8, 9, 10, 11]])
mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])

for name, options in MODELS.items():
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **options})
    kind = getattr(transformers, f"{name}ForCausalLM", None)
    model = filled((kind or transformers.GPT2LMHeadModel)(config)).eval()
    found = model(input_ids=ids, labels=ids, attention_mask=mask)
    show(name, found.loss, found.logits)
    found.loss.backward()
    show("gradients", *[weight.grad.norm() for weight in list(model.parameters())[:3]])
    text = model.generate(ids[:1], max_new_tokens=6, do_sample=False)
    print("text", text[0].tolist())
