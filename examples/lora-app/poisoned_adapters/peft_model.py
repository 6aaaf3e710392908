"""A DistilBERT of the package `transformers`, with adapters of the package PEFT.

About a million parameters are trained and sent.
"""

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification

ADAPTED = ["q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"]
"""The names of the linear layers that get an adapter. These are all linear layers of a transformer block."""


class PeftTransformer(nn.Module):
    """A DistilBERT with random weights. Everything except the adapters and the output layers is frozen.

    A real federation would load trained weights. Here the weights are random, so that nothing is downloaded.
    """

    def __init__(self, words: int, length: int, rank: int = 72) -> None:
        super().__init__()
        config = DistilBertConfig(
            vocab_size=words, max_position_embeddings=length, dim=192, n_layers=4, n_heads=6, hidden_dim=768,
            num_labels=2, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, initializer_range=0.1,
        )  # fmt: skip
        lora = LoraConfig(task_type="SEQ_CLS", r=rank, lora_alpha=rank, target_modules=ADAPTED)
        self.model = get_peft_model(DistilBertForSequenceClassification(config), lora)

    def forward(self, x: Tensor) -> Tensor:
        """Return two numbers for each review: one for bad, and one for good."""
        logits: Tensor = self.model(input_ids=x, attention_mask=torch.ones_like(x)).logits
        return logits
