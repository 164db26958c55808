"""Low-rank adapters of `peft` in a model of `transformers`, trained and merged."""

import os

import torch
from shown import filled, show

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import peft
import transformers

config = transformers.LlamaConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    vocab_size=99, num_key_value_heads=2,
)  # fmt: skip
adapters = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_alpha=8)
model = filled(peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)).eval()
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2)
ids = torch.arange(16).reshape(2, 8)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    show("loss", loss)
show("merged", model.merge_and_unload()(input_ids=ids).logits)
