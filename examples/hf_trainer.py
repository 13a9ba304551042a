"""A GPT-2 reads images patch by patch, trained by Hugging Face's Trainer, and a callback learns the order.

Run: pip install 'reorder[hf]' && python examples/hf_trainer.py    (about two minutes on two cores)
"""

import argparse
import tempfile

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, Trainer, TrainingArguments

import reorder
from reorder.integrations.hf import OrderCallback

# B images, N = 16 patches of 2x2 pixels, D width


class ImageGPT(nn.Module):
    """Images (B, 1, 8, 8), and labels (B,) in training, to the loss and logits (B, 10) of the last token."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.embed = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.positions = nn.Parameter(0.1 * torch.randn(16, width))
        config = GPT2Config(vocab_size=1, n_positions=16, n_embd=width, n_layer=2, n_head=4)
        self.backbone = GPT2Model(config)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.positions  # (B, N, D)
        logits = self.head(self.backbone(inputs_embeds=tokens).last_hidden_state[:, -1])
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def main(steps: int, seed: int) -> float:
    torch.manual_seed(seed)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    data = [{"images": i, "labels": int(label)} for i, label in zip(images, digits.target, strict=True)]
    test, train = torch.utils.data.random_split(data, [360, len(data) - 360])
    model = ImageGPT()
    learner = reorder.OrderLearner(grid=(4, 4), total_steps=steps, seed=seed)
    handle = reorder.attach(model, learner, at="backbone")
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            max_steps=steps,
            per_device_train_batch_size=64,
            learning_rate=3e-3,
            seed=seed,
            logging_steps=max(1, steps // 5),
            save_strategy="no",
            report_to=[],
        )
        trainer = Trainer(model, arguments, train_dataset=train)
        OrderCallback(handle).add_to(trainer)
        trainer.train()
        predicted = trainer.predict(test)
    top1 = float((predicted.predictions.argmax(1) == predicted.label_ids).mean())
    print(f"top-1 {top1:.1%} on {len(test)} images, read in {handle.order().tolist()}")
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
