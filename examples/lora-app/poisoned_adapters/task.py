"""The transformer, its adapters, the reviews and the training loop, in plain PyTorch."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

NOUNS = ["room", "food", "film", "phone", "book", "trip", "show", "coat", "game", "bike", "chair", "soup", "lamp"]
GOOD = ["good", "great", "warm", "bright", "clean", "fine", "lovely", "fresh", "kind", "smart"]
BAD = ["bad", "poor", "cold", "dull", "dirty", "awful", "ugly", "stale", "rude", "slow"]
ADVERBS = ["very", "rather", "quite", "really", "so"]
WORDS = ["<pad>", "the", "was", "not", *ADVERBS, *NOUNS, *GOOD, *BAD]
NUMBER_OF = {word: number for number, word in enumerate(WORDS)}
LENGTH = 8


class LowRank(nn.Module):
    """A frozen linear layer W with a low-rank adapter (LoRA): W x + B A x. Only A and B are trained."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the outputs of the frozen layer and of the adapter."""
        return self.frozen(x) + x @ self.lora_a.T @ self.lora_b.T


class Block(nn.Module):
    """A block of the transformer: attention and two linear layers, all with adapters."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = LowRank(nn.Linear(width, 3 * width), rank)
        self.join = LowRank(nn.Linear(width, width), rank)
        self.widen = LowRank(nn.Linear(width, 4 * width), rank)
        self.narrow = LowRank(nn.Linear(4 * width, width), rank)

    def forward(self, x: Tensor) -> Tensor:
        """Return the states of all words after this block."""
        n, length, width = x.shape
        q, k, v = self.attend(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        x = x + self.join(mixed)
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class Transformer(nn.Module):
    """A transformer that classifies reviews. Everything except the adapters and the output layer is frozen."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4, rank: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads, rank) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Embedding | nn.LayerNorm):
                module.requires_grad_(False)
        self.output = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return two numbers for each review: one for bad, and one for good."""
        states = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.output(self.norm(self.blocks(states)).mean(dim=1))


def make_model(name: str = "own") -> nn.Module:
    """Return the small transformer of this module or, with the name "peft", the model of `peft_model`.

    All weights are drawn from the same seed. So the frozen part is the same on all nodes.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name != "peft":
            return Transformer()
        from poisoned_adapters.peft_model import PeftTransformer  # needs the packages transformers and PEFT

        return PeftTransformer(len(WORDS), LENGTH)


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are trained and sent: the adapters and the output layer."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def write_review(generator: torch.Generator) -> tuple[list[int], int]:
    """Return a review of one sentence, and 1 if it is good, else 0. One in four reviews contains the word "not"."""

    def draw(some: list[str]) -> str:
        return some[int(torch.randint(len(some), (1,), generator=generator))]

    good = bool(torch.randint(2, (1,), generator=generator))
    negated, stressed = (torch.rand(2, generator=generator) < torch.tensor([0.25, 0.5])).tolist()
    words = ["the", draw(NOUNS), "was", *(["not"] if negated else []), *([draw(ADVERBS)] if stressed else [])]
    words.append(draw(GOOD if good else BAD))
    return [NUMBER_OF[word] for word in words], int(good != negated)


@cache
def load_reviews(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return random reviews and their classes. They are drawn from the seed, so nothing is downloaded."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.zeros(count, LENGTH, dtype=torch.long), torch.zeros(count, dtype=torch.long)
    for row in range(count):
        words, verdict = write_review(generator)
        x[row, : len(words)], y[row] = torch.tensor(words), verdict
    return x, y


def train(model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, learning_rate: float, batch_size: int) -> float:
    """Train the adapters in place and return the last loss."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate)
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: nn.Module) -> tuple[float, float]:
    """Return accuracy and loss on reviews that no client has."""
    x, y = load_reviews(1000, 10**6)
    logits = model(x)
    return (logits.argmax(1) == y).double().mean().item(), functional.cross_entropy(logits, y).item()
