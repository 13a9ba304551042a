"""Wrong programs that the tests must notice: each mutant is the source with one text replaced by another.

    python tests/mutants.py [--jobs 2] [TEXT ...]    all mutants, or those whose file or text holds a TEXT

Mutants live in a temporary copy of the source; the checkout is never touched. At least 90% must be caught.
One that survives is either hopeless, and says why here, or asks for a test.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
SECONDS = 1800  # a mutant that takes longer hangs, which is noticed too
CAUGHT, HANGS, SURVIVES = "caught", "hangs", "survives"
LEAST = 0.9  # caught


class Mutant(NamedTuple):
    file: str  # below src/reorder
    old: str  # occurs there once
    new: str
    tests: str  # below tests, the likeliest to notice first
    why: str = ""  # nothing can notice it


SCANS, ORDER, POLICY = "orders/test_scans.py", "orders/test_order.py", "orders/test_policy.py"
STRAIGHT, BLOCKS = "orders/test_straight_through.py", "orders/test_blocks.py"
IMAGE = "orders/test_image_policy.py"
REWARD, CURRICULUM, LEARNER = (
    "orders/test_estimators.py",
    "orders/test_curriculum.py",
    "orders/test_learner.py",
)
VERDICTS = "report/test_verdicts.py"
TRAIN, ENGINE, EVALUATION, RUN = (
    "training/test_train.py",
    "training/test_engine.py",
    "report/test_evaluation.py",
    "training/test_setup.py",
)
EVALUATE, RESULTS, COMPARISONS, GAINS = (
    "models/test_accuracy.py",
    "report/test_results.py",
    "report/test_comparisons.py",
    "report/test_gains.py",
)
COMPARISON = "experiments/test_comparison.py"
TRAINED = "runs/test_trained.py"
EXTERNAL, PUBLISHED, SENSITIVITY = (
    "models/test_external.py",
    "models/test_published.py",
    "report/test_sensitivity.py",
)
SEGMENT_ATTENTION = "models/kernels/segment_attention.py"
SEGMENTS = "models/kernels/test_segment_attention.py"
MOVED = "data/test_moved.py"
PATCHES = "models/test_patches.py"
WINDOW = "models/kernels/test_sliding_window.py"
TRITON = "models/kernels/test_triton.py"
SCAN_TRITON = "models/kernels/selective_scan_triton.py"
CONV_TRITON = "models/kernels/causal_conv_triton.py"
BAND_TRITON = "models/kernels/band_attention_triton.py"
READ_TRITON = "orders/straight_through_triton.py"
RANKING, ENTROPY = "prior/test_ranking.py", "prior/test_entropy.py"
COMPRESSIBILITY, KMEANS, COMMAND = (
    "prior/test_compressibility.py",
    "prior/test_kmeans.py",
    "prior/test_command.py",
)
CANDIDATES, BUDGET, SEARCH = (
    "orders/test_candidates.py",
    "experiments/test_budget.py",
    "experiments/test_search.py",
)
ATTACH, MISTAKES, LEARNING = (
    "models/test_attach.py",
    "orders/test_mistakes.py",
    "integrations/test_learning.py",
)
RESAMPLE, LOADING, EXPORT = "orders/test_resample.py", "runs/test_loading.py", "runs/test_export.py"
MUTANTS = [
    # Orders: scans
    Mutant("orders/scans.py", "_sorted_by(r + c, r)", "_sorted_by(r + c, c)", SCANS),
    Mutant("orders/scans.py", "s % 2 == 0", "s % 2 == 1", SCANS),
    Mutant("orders/scans.py", "_sorted_by(c - r, c)", "_sorted_by(r - c, c)", SCANS),
    Mutant("orders/scans.py", "c, r = np.divmod(", "r, c = np.divmod(", SCANS),
    Mutant("orders/scans.py", ".T.reshape(-1)", ".reshape(-1)", SCANS),
    Mutant("orders/scans.py", "+ (height - 1 - down)", "+ down", SCANS),
    Mutant("orders/scans.py", "2 * _length(a) > 3 * _length(b)", "2 * _length(a) < 3 * _length(b)", SCANS),
    Mutant("orders/scans.py", "(_length(half) % 2 == 1)", "(_length(half) % 2 == 0)", SCANS),
    Mutant("orders/scans.py", "if rows < 1 or columns < 1:", "if rows < 0 or columns < 0:", SCANS),
    # Others' models and loops
    Mutant("models/attach.py", "slot_of = invert(self._now)", "slot_of = self._now", ATTACH),
    Mutant("models/attach.py", "order.gather(1, kept)", "kept", ATTACH),
    Mutant("models/attach.py", "with torch.enable_grad():", "with torch.no_grad():", ATTACH),
    Mutant("models/attach.py", "if not training:", "if training:", ATTACH),
    Mutant("models/positions.py", "order + prefix]", "order]", ATTACH),
    Mutant(
        "models/positions.py", "rotation[order.to(rotation.device)]", "rotation.expand(1, -1, -1)", ATTACH
    ),
    Mutant("models/places.py", "registers.shape[1]", "1", ATTACH),
    Mutant("models/indifference.py", "module.training = mode", "module.training = True", ATTACH),
    Mutant("orders/mistakes.py", "step < self.step", "step > self.step", MISTAKES),
    Mutant("orders/signal.py", "mean_power - share * noise", "mean_power", MISTAKES),
    Mutant("integrations/learning.py", "/= scaler.get_scale()", "*= scaler.get_scale()", LEARNING),
    Mutant(
        "integrations/learning.py",
        "if gradients and all(bool(gradient.isfinite().all()) for gradient in gradients):",
        "if gradients:",
        LEARNING,
    ),
    # Orders: reading and comparing them
    Mutant("orders/read.py", "index_select(1, order)", "index_select(1, invert(order))", ORDER),
    Mutant("orders/read.py", "tokens.gather(1, order[:", "tokens.gather(1, invert(order)[:", ORDER),
    Mutant("orders/order.py", "scatter_(-1, order, slots)", "copy_(order)", ORDER),
    Mutant("orders/order.py", "| (row >= patches)", "| (row > patches)", ORDER),
    Mutant(
        "orders/files.py", "(rows, columns) != check_grid(grid)", "rows * columns != grid[0] * grid[1]", ORDER
    ),
    Mutant("orders/distances.py", "kendalltau(invert(order)", "kendalltau(order", ORDER),
    # Orders: the policy
    Mutant("orders/policy.py", "torch.linspace(0, -1,", "torch.linspace(0, -2,", POLICY),
    Mutant("orders/policy.py", "argsort(dim=-1, descending=True", "argsort(dim=-1, descending=False", POLICY),
    Mutant("orders/policy.py", "+ temperature * self.gumbel", "+ self.gumbel", POLICY),
    Mutant("orders/policy.py", "return -waiting", "return waiting", POLICY),
    Mutant("orders/policy.py", "logits.double() / temperature", "logits.double() * temperature", POLICY),
    Mutant("orders/policy.py", "logits.double() / temperature", "logits / temperature", POLICY),
    Mutant(
        "orders/policy.py", "values.flip(-1).logcumsumexp(-1).flip(-1)", "values.logcumsumexp(-1)", POLICY
    ),
    Mutant("orders/policy.py", "remaining - bound + mean_gap", "remaining - bound", POLICY),
    # Orders: REINFORCE
    Mutant(
        "orders/estimators.py",
        "self.momentum * before + (1 - self.momentum) * mean",
        "(1 - self.momentum) * before + self.momentum * mean",
        REWARD,
    ),
    Mutant("orders/estimators.py", "self.value if self.started else mean", "self.value", REWARD),
    Mutant(
        "orders/estimators.py", "rewards - self.value.to(rewards)", "self.value.to(rewards) - rewards", REWARD
    ),
    Mutant(
        "orders/estimators.py", "copy_(mean - self.value)", "copy_(self.value - mean)", f"{REWARD} {LEARNER}"
    ),
    Mutant("orders/estimators.py", "return temperature * exact_score(", "return exact_score(", REWARD),
    Mutant(
        "orders/estimators.py",
        "return policy.log_prob(orders)\n",
        "return policy.log_prob(orders, temperature)\n",
        REWARD,
    ),
    Mutant("orders/estimators.py", "return -(advantages * self", "return (advantages * self", REWARD),
    Mutant("orders/estimators.py", "return -(advantages * temp", "return (advantages * temp", REWARD),
    Mutant("orders/estimators.py", "* count / (count - 1)", "", REWARD),
    Mutant("orders/estimators.py", "by_order.mean(0) - by_order", "by_order.mean() - by_order", REWARD),
    Mutant("orders/estimators.py", "return mean_over_ranks(grad)", "return grad", LEARNER),
    Mutant(
        "orders/estimators.py", '"scaled", momentum: float = 0.99', '"scaled", momentum: float = 0.9', LEARNER
    ),
    # Orders: the curriculum
    Mutant("orders/curriculum.py", "if step < start_step", "if step <= start_step", CURRICULUM),
    Mutant("orders/curriculum.py", "POLICY if step < stop_step", "POLICY if step <= stop_step", CURRICULUM),
    Mutant(
        "orders/curriculum.py",
        "half = (stop_step - start_step) / 2",
        "half = stop_step - start_step",
        CURRICULUM,
    ),
    Mutant(
        "orders/curriculum.py", "base * (step + 1) / warmup_steps", "base * step / warmup_steps", CURRICULUM
    ),
    Mutant(
        "orders/curriculum.py",
        "0.5 * (1 + math.cos(math.pi * min(1.0, progress)))",
        "(1 - progress)",
        CURRICULUM,
    ),
    # Orders: one per image
    Mutant("orders/image_policy.py", "learning.kept * gradient", "gradient", IMAGE),
    Mutant("orders/image_policy.py", "return logits + own", "return logits - own", IMAGE),
    Mutant("orders/image_policy.py", "logits + self.temperature * noise", "logits + noise", IMAGE),
    Mutant("orders/image_policy.py", "self.reach * (self.head", "(self.head", IMAGE),
    Mutant("orders/image_policy.py", "nn.init.zeros_(self.head.weight)", "pass", IMAGE),
    Mutant("orders/policy.py", "scaled.gather(1, orders)", "scaled", IMAGE),
    Mutant(
        "orders/learner.py", "step_generator(self.seed, step, rank)", "step_generator(self.seed, 0)", IMAGE
    ),
    # Orders: the learner
    Mutant("orders/learner.py", "orders = self.first[None]", "orders = self.policy.mode()[None]", LEARNER),
    Mutant("orders/learner.py", "self.policy.logits.grad = None", "pass", LEARNER),
    Mutant(
        "orders/learner.py", "if self._drawn is None or not self.learn:", "if self._drawn is None:", LEARNER
    ),
    Mutant("orders/learner.py", "self._drawn[1] > 0 or by_epoch", "self._drawn[1] > 0", LEARNER),
    Mutant("orders/learner.py", "invert(scan) if inverse_logits", "scan if inverse_logits", LEARNER),
    Mutant("orders/curriculum.py", "(step - start_step) // every", "(step - start_step)", CURRICULUM),
    Mutant("orders/curriculum.py", "falls = warmup_steps + hold_steps", "falls = warmup_steps", CURRICULUM),
    Mutant("orders/curriculum.py", "(floor + (1 - floor)", "(floor + 1", CURRICULUM),
    Mutant("training/guards.py", "clip_grad_norm_(run.learner.parameters(), largest)", "pass", TRAIN),
    Mutant("orders/learner.py", ".log().flip(0)", ".log()", LEARNER),
    Mutant("orders/learner.py", "(NARROWEST / WIDEST) ** done", "(WIDEST / NARROWEST) ** done", LEARNER),
    Mutant("orders/learner.py", "reach / max(1, self.stop_step - self.start_step)", "reach", LEARNER),
    Mutant("orders/estimators.py", "(-losses.mean())", "(losses.mean())", REWARD),
    Mutant("orders/estimators.py", "mean_over_ranks(-losses.mean())", "(-losses.mean())", LEARNER),
    # Orders: straight-through reading
    Mutant("orders/straight_through.py", "difference.sign() / -width", "difference.sign() / width", STRAIGHT),
    Mutant("orders/straight_through.py", "total[..., near] -= pull.sum(-2)", "pass", STRAIGHT),
    Mutant(
        "orders/straight_through.py", "products - (weights * products)", "products - (products)", STRAIGHT
    ),
    Mutant("orders/straight_through.py", "table.transpose(1, 1 + axis)", "table.transpose(1, 1)", BLOCKS),
    Mutant("orders/blocks.py", "torch.where(drawn, found, -torch.inf)", "found", BLOCKS),
    Mutant("orders/blocks.py", "entropy(blocks, parts[0], temperature) +", "", BLOCKS),
    Mutant(
        "orders/blocks.py",
        "slots.masked_fill(self.layout < 0,",
        "slots.masked_fill(self.layout < -1,",
        BLOCKS,
    ),
    Mutant("orders/blocks.py", "(whole - whole.mean(1, keepdim=True))", "whole", BLOCKS),
    Mutant(
        "models/patches.py",
        "max(1, TILE // columns) * self.patch_size",
        "2 * self.patch_size",
        "models/test_patches.py",
    ),
    Mutant("orders/straight_through.py", "scores.device) > band", "scores.device) >= band", STRAIGHT),
    Mutant("orders/curriculum.py", "return peak * (1 - progress", "return peak * (progress", LEARNER),
    Mutant("orders/fixed.py", "spawn_key=(step, *rank)", "spawn_key=(0,)", LEARNER),
    Mutant(
        "orders/fixed.py",
        "SeedSequence(seed, spawn_key=(step, *rank))",
        "SeedSequence([seed, step])",
        LEARNER,
    ),
    Mutant(
        "orders/curriculum.py",
        "round((warmup_fraction + policy_fraction) *",
        "round(policy_fraction *",
        LEARNER,
    ),
    Mutant("orders/estimators.py", "if not rewards.isfinite():", "if False:", LEARNER),
    Mutant(
        "orders/learner.py",
        "return step is not None and self.stage(step) ==",
        "step is None and self.stage(0) ==",
        LEARNER,
    ),
    # Training: a step
    Mutant("training/guards.py", "scale(policy_loss).backward()", "scale(-policy_loss).backward()", TRAIN),
    Mutant("training/step.py", "run.optimizer.param_groups[:-1]", "run.optimizer.param_groups", TRAIN),
    Mutant(
        "training/step.py",
        "run.step, warmup_steps, run.total_steps",
        "run.step + 1, warmup_steps, run.total_steps",
        TRAIN,
    ),
    Mutant(
        "training/guards.py",
        "clip_grad_norm_(run.model.parameters(), run.experiment.train.clip)",
        "clip_grad_norm_(run.model.parameters(), 1e9)",
        TRAIN,
    ),
    Mutant(
        "training/step.py",
        "derive_seed(run.experiment.train.seed, run.step,",
        "derive_seed(run.experiment.train.seed, 0,",
        TRAIN,
    ),
    Mutant("training/step.py", "run.optimizer.zero_grad()", "pass", f"{ENGINE} {TRAIN}"),
    Mutant("training/guards.py", "buffer.copy_(old)", "pass", ENGINE),
    Mutant(
        "training/guards.py",
        "    if finite:\n        run.scaler.step",
        "    if True:\n        run.scaler.step",
        ENGINE,
    ),
    Mutant("training/state.py", "self.skipped_in_a_row = 0", "pass", ENGINE),
    Mutant("training/guards.py", "run.ema.update_parameters(unwrapped(run.model))", "pass", ENGINE),
    Mutant("training/step.py", "part.sum() / len(images)", "part.mean()", ENGINE),
    # Training: a run
    Mutant(
        "training/loop.py",
        "validate(run, learner.reading(last), stop)",
        "validate(run, learner.reading(), stop)",
        EVALUATION,
    ),
    Mutant("training/summary.py", "run.learner.order(run.total_steps - 1)", "run.learner.order(0)", TRAIN),
    Mutant(
        "training/validation.py",
        "run.ema.module if run.ema is not None else unwrapped(run.model)",
        "unwrapped(run.model)",
        ENGINE,
    ),
    Mutant("training/summary.py", '"top5": result.top5', '"top5": result.top1', EVALUATION),
    Mutant("experiments/arms.py", "keys not in seen", "True", COMPARISON),
    Mutant("experiments/arms.py", 'BY_DEFAULT = ("start", "row")', 'BY_DEFAULT = ("row",)', COMPARISON),
    Mutant("experiments/comparison.py", 'order.json")), main.name', 'order.json")), None', COMPARISON),
    Mutant(
        "training/continuing.py",
        "warmup_fraction=warmup * scale",
        "warmup_fraction=warmup",
        "training/test_interruptions.py",
    ),
    Mutant("training/setup.py", "betas=(0.9, 0.999)", "betas=(0.9, 0.99)", TRAIN),
    Mutant("training/setup.py", '{"params": spared, "weight_decay": 0.0}', '{"params": spared}', ENGINE),
    Mutant("training/setup.py", 'learn=settings.policy != "noise"', "learn=True", TRAIN),
    Mutant("training/setup.py", "        seed=experiment.train.seed,\n", "        seed=0,\n", TRAIN),
    Mutant("training/setup.py", "estimator=settings.estimator,", 'estimator="scaled",', TRAIN),
    Mutant("orders/named.py", "return random_order(grid, seed)", "return random_order(grid, 0)", TRAIN),
    Mutant(
        "training/checkpoint.py",
        "learner.temperature(run.step - 1), logits",
        "learner.temperature(run.step), logits",
        f"{RUN} {TRAIN}",
    ),
    Mutant("training/checkpoint.py", "length * moment / MOMENTS", "length * moment / 20", RUN),
    Mutant(
        "training/checkpoint.py",
        'run.optimizer.load_state_dict(checkpoint.state["optimizer"])',
        "pass",
        TRAIN,
    ),
    Mutant(
        "training/checkpoint.py", "    if run.skipped_in_a_row >= MOST", "    if run.skipped >= MOST", ENGINE
    ),
    Mutant(
        "data/loader.py", "random.random(count) < 0.5", "random.random(count) < 0.2", "data/test_loader.py"
    ),
    Mutant(
        "data/loader.py",
        "default_rng([self.seed, epoch])",
        "default_rng([self.seed, 0])",
        "data/test_loader.py",
    ),
    # Evaluation
    Mutant("runs/trained.py", 'return state["step"] - 1 < start', "return False", EVALUATION),
    Mutant("runs/trained.py", 'start = state.get("start_step")', "start = None", TRAINED),
    Mutant("runs/trained.py", 'return last["step"] // last["epoch"]', "return 10**6", EVALUATION),
    Mutant(
        "runs/trained.py",
        "own.data, own.train.batch_size, own.train.seed",
        "own.data, 1, own.train.seed",
        EVALUATION,
    ),
    Mutant(
        "report/evaluation.py",
        "paired_difference(correct_a, correct_b,",
        "paired_difference(correct_b, correct_a,",
        EVALUATION,
    ),
    Mutant("report/evaluation.py", "train.seed + 1)", "train.seed)", EVALUATION),
    Mutant("report/evaluation.py", '"own-reversed": own.flip(0)', '"own-reversed": own', EVALUATION),
    Mutant("report/evaluation.py", '("top5", result.correct5)', '("top5", result.correct)', EVALUATION),
    Mutant("report/evaluation.py", '    "data.train_images",\n', "", EVALUATION),
    Mutant("models/coverage.py", "    model.eval()\n", "", "models/test_coverage.py"),
    Mutant("models/accuracy.py", "rows[rows[:, 0].argsort()].T", "rows.T", EVALUATE),
    Mutant("models/accuracy.py", "topk(min(5, logits.shape[1]))", "topk(min(4, logits.shape[1]))", EVALUATE),
    # Models: where the class token stands, and what it sees
    Mutant("models/readout.py", '"last": length - 1', '"last": length - 2', SEGMENTS),
    Mutant("models/readout.py", "tokens[:, 1:].mean(1", "tokens.mean(1", SEGMENTS),
    Mutant("models/transformer_xl.py", "needed[0] // segment * segment - self.memory", "needed[0]", SEGMENTS),
    Mutant("models/transformer_xl.py", 'has_global=readout == "first"', "has_global=True", SEGMENTS),
    Mutant(SEGMENT_ATTENTION, "segment * cut.segment - cut.memory)", "segment * cut.segment)", SEGMENTS),
    Mutant(SEGMENT_ATTENTION, "return own, inside - own + before", "return inside, before", SEGMENTS),
    Mutant(SEGMENT_ATTENTION, "return inside + before if cut.before else inside", "return inside", SEGMENTS),
    Mutant("models/kernels/sliding_window.py", "seen |= query >= cut.length", "seen |= query < 0", WINDOW),
    # Models: Triton's kernels
    Mutant(SCAN_TRITON, "grad * (h - step * value * into)", "grad * h", TRITON),
    Mutant(SCAN_TRITON, "exists &= (time + 1 < start + CHUNK)[:, None]\n    later", "later", TRITON),
    Mutant(SCAN_TRITON, "(chunks - 1 - count if BACKWARD else count)", "count", TRITON),
    Mutant(
        BAND_TRITON, "slot[:, None] - slot[None, :] + SLOTS - 1", "slot[None, :] + 0 * slot[:, None]", TRITON
    ),
    Mutant(BAND_TRITON, "tl.where(own, dscores, 0.0)", "dscores", TRITON),
    Mutant(
        BAND_TRITON, "((last - first + memory) // segment + 1)", "((last - first) // segment + 1)", TRITON
    ),
    Mutant(CONV_TRITON, "(1.0 + value * (1.0 - gate))", "(1.0 + value * gate)", TRITON),
    Mutant(READ_TRITON, "(means * signs - signed)", "(means * signs + signed)", TRITON),
    Mutant("models/coverage.py", "found = found[slot_of][:, slot_of]", "pass", "models/test_coverage.py"),
    # Statistics
    Mutant(
        "runs/statistics.py",
        "def bootstrap(correct: Tensor, resamples: int = 2000",
        "def bootstrap(correct: Tensor, resamples: int = 200",
        EVALUATE,
    ),
    Mutant(
        "runs/statistics.py",
        "def bootstrap_sem(correct: Tensor, resamples: int = 2000",
        "def bootstrap_sem(correct: Tensor, resamples: int = 200",
        EVALUATE,
    ),
    Mutant("runs/statistics.py", "    resamples: int = 2000,\n", "    resamples: int = 200,\n", EVALUATE),
    Mutant("runs/statistics.py", "[0.025, 0.975]", "[0.05, 0.95]", EVALUATE),
    Mutant("runs/statistics.py", "(2 * for_a - differ) / images", "for_a / images", EVALUATE),
    Mutant("runs/statistics.py", "max(abs(only_a - only_b) - 1, 0)", "abs(only_a - only_b)", EVALUATE),
    Mutant("runs/statistics.py", "min(1.0, 2 * tail)", "min(1.0, tail)", EVALUATE),
    Mutant("runs/statistics.py", "EXACT_BELOW = 25", "EXACT_BELOW = 26", EVALUATE),
    Mutant("models/accuracy.py", ".item() / math.sqrt(len(self.losses))", ".item()", EVALUATE),
    Mutant(
        "runs/statistics.py",
        "Spread(estimates.std().item()",
        "Spread(estimates.std(correction=0).item()",
        EVALUATE,
        why="of 2,000 resamples it changes an error by 1 part in 4,000, far less than drawing others",
    ),
    Mutant(
        "runs/statistics.py",
        "float(np.std(values, ddof=1) / math.sqrt(seeds))",
        "float(np.std(values) / math.sqrt(seeds))",
        RESULTS,
    ),
    Mutant(
        "runs/statistics.py", "np.std(values, ddof=1) / math.sqrt(seeds)", "np.std(values, ddof=1)", RESULTS
    ),
    Mutant("runs/statistics.py", "np.mean(known, axis=0).std()", "np.concatenate(known).std()", RESULTS),
    Mutant("report/results.py", "int(part) if part.isdecimal() else part", "part", RESULTS),
    Mutant("runs/statistics.py", "count * len(shared), count", "len(shared), count", RESULTS),
    Mutant(
        "runs/statistics.py",
        "mean.seeds - 1))",
        "mean.seeds))",
        f"{COMPARISONS} report/test_result_tables.py",
    ),
    Mutant(
        "runs/statistics.py", "float(2 * t.sf(", "float(t.sf(", f"{COMPARISONS} report/test_result_tables.py"
    ),
    Mutant("runs/statistics.py", "(treatments - 1) * (blocks - 1)", "treatments * (blocks - 1)", COMPARISONS),
    Mutant("report/comparisons.py", "self.error**2 / 2", "self.error**2", COMPARISONS),
    Mutant(
        "runs/statistics.py",
        "values - values.mean(0) - by_treatment",
        "values - values.mean() - by_treatment",
        COMPARISONS,
    ),
    Mutant("report/comparisons.py", "(against != NOISE or all(equal))", "True", f"{COMPARISONS} {VERDICTS}"),
    Mutant("report/comparisons.py", "max(fitting, key=", "min(fitting, key=", f"{COMPARISONS} {VERDICTS}"),
    Mutant("report/comparisons.py", "others.get(a.seed)", "next(iter(others.values()), None)", COMPARISONS),
    Mutant(
        "report/comparisons.py", "a.correct.astype(float) - b.correct", "a.correct.astype(float)", COMPARISONS
    ),
    Mutant(
        "report/comparisons.py", "np.mean([*found.share], axis=0)", "np.max([*found.share], axis=0)", GAINS
    ),
    Mutant("report/gains.py", "if block.start.nunique() > 1:", "if block.start.nunique() > 0:", GAINS),
    Mutant("report/gains.py", 'if not model.startswith("vit"):', "if True:", GAINS),
    Mutant(
        "report/verdicts.py", "abs(found.points) <= found.bound", "abs(found.points) <= found.sem", VERDICTS
    ),
    Mutant("report/verdicts.py", "'better' if found.points > 0", "'better' if found.points < 0", VERDICTS),
    Mutant("report/verdicts.py", "(group.verdict is not None, group.runs)", "group.runs", VERDICTS),
    Mutant("report/verdicts.py", "(differences[name].seeds, differences", "(0, differences", VERDICTS),
    Mutant("report/gains.py", "len(differing) != 1", "len(differing) > 2", GAINS),
    Mutant(
        "report/gains.py", "_one_change(ours[order][0], theirs", "_one_change(theirs[order][0], theirs", GAINS
    ),
    # The prior
    Mutant("prior/compressibility.py", "numbers[:, :-1] * kind", "numbers[:, 1:] * kind", COMPRESSIBILITY),
    Mutant("prior/compressibility.py", "- 2 * c[one, other]", "", f"{RANKING} {COMPRESSIBILITY}"),
    Mutant(
        "prior/compressibility.py",
        "np.outer(mean, mean)) / (count - 1)",
        "np.outer(mean, mean)) / count",
        COMPRESSIBILITY,
    ),
    Mutant(
        "prior/compressibility.py",
        "return (patches - ENCODINGS.index(encoding)) *",
        "return patches *",
        COMPRESSIBILITY,
    ),
    Mutant(
        "prior/compressibility.py",
        "1 + ENCODINGS.index(encoding)) - 1",
        "1 + ENCODINGS.index(encoding))",
        COMPRESSIBILITY,
    ),
    Mutant(
        "prior/compressibility.py", "Estimates(100 - scale * mean", "Estimates(scale * mean", COMPRESSIBILITY
    ),
    Mutant("prior/compressibility.py", "codes[start::step]", "codes[start:]", COMPRESSIBILITY),
    Mutant("prior/entropy.py", "plug_in + (cells - contexts)", "plug_in - (cells - contexts)", ENTROPY),
    Mutant("prior/entropy.py", "(blocks - 1) / blocks * without", "1 / blocks * without", ENTROPY),
    Mutant(
        "prior/entropy.py", "(of_contexts - of_cells) / count", "(of_cells - of_contexts) / count", ENTROPY
    ),
    Mutant(
        "prior/ranking.py",
        "key=lambda row: reduction.value[row])",
        "key=lambda row: -reduction.value[row])",
        RANKING,
    ),
    Mutant("prior/ranking.py", "lead <= 2 * sem", "lead <= sem", RANKING),
    Mutant("prior/ranking.py", '-found["corrected"]', 'found["corrected"]', RANKING),
    Mutant("prior/kmeans.py", "transposed, alpha=-1)", "transposed, alpha=1)", KMEANS),
    Mutant("training/continuing.py", "for run in runs:", "for run in runs[:1]:", COMMAND),
    # Search: candidates, the plan, the ranking, the verdict
    Mutant(
        "orders/candidates.py",
        "(row % down) * right + column % right",
        "(row % down) * down + column % right",
        CANDIDATES,
    ),
    Mutant(
        "orders/candidates.py",
        "(row // side) * grid[1] + column // side",
        "(row // side) + column // side",
        CANDIDATES,
    ),
    Mutant(
        "orders/candidates.py",
        "order % rows * columns + order // rows",
        "order // rows * columns + order % rows",
        CANDIDATES,
    ),
    Mutant(
        "orders/candidates.py",
        "columns - 1 - column if left_to_right",
        "columns - 1 - column if upside_down",
        CANDIDATES,
    ),
    Mutant("orders/candidates.py", "order.flip(0) if backwards else order", "order", CANDIDATES),
    Mutant(
        "orders/candidates.py",
        "torch.cat([rest[:start], kept, rest[start:]])",
        "torch.cat([kept, rest])",
        CANDIDATES,
    ),
    Mutant(
        "orders/candidates.py",
        "torch.cat([rest[:to], order[start:stop], rest[to:]])",
        "torch.cat([rest, order[start:stop]])",
        CANDIDATES,
    ),
    Mutant(
        "orders/candidates.py",
        "order[start:stop].flip(0), order[stop:]",
        "order[start:stop], order[stop:]",
        CANDIDATES,
    ),
    Mutant("experiments/budget.py", "(left + 1) * (further - trained)", "left * (further - trained)", BUDGET),
    Mutant(
        "experiments/budget.py",
        "left, trained = count - 1 + varied",
        "left, trained = count + varied",
        BUDGET,
    ),
    Mutant("experiments/budget.py", "cost(more) <= most", "cost(more) <= most + 1", BUDGET),
    Mutant(
        "experiments/budget.py",
        "return self.search_epochs + self.epochs",
        "return self.search_epochs",
        BUDGET,
    ),
    Mutant(
        "runs/searches.py", "rung.epochs == self.rungs[-1].epochs", "rung.epochs", "runs/test_searches.py"
    ),
    Mutant(
        "runs/searches.py",
        "return -score.top1, score.loss",
        "return score.top1, score.loss",
        "runs/test_searches.py",
    ),
    Mutant("runs/searches.py", "in reversed(self.rungs):", "in self.rungs:", "runs/test_searches.py"),
    Mutant(
        "experiments/final.py",
        "equal.points < -equal.bound",
        "equal.points < 0",
        "experiments/test_final.py",
    ),
    Mutant(
        "experiments/final.py",
        "abs(each.points) + each.bound",
        "each.points + each.bound",
        "experiments/test_final.py",
    ),
    Mutant("experiments/final.py", "plain.train.seed + number", "plain.train.seed", SEARCH),
    Mutant(
        "experiments/final.py",
        "replace(experiment.order, scan=found)",
        "replace(experiment.order)",
        SEARCH,
    ),
    Mutant(
        "experiments/final.py",
        "for other in (ROW, FOUND, LONGER)",
        "for other in (ROW, ROW, LONGER)",
        SEARCH,
    ),
    Mutant(
        "experiments/final.py",
        "fixed if own is None else fixed | {OWN: own.row}",
        "fixed",
        "experiments/test_final.py",
    ),
    Mutant("experiments/search.py", "found.get(key, usual.get(key))", "found.get(key)", SEARCH),
    Mutant("experiments/rungs.py", "seed=train.seed + asked.seeds", "seed=train.seed", SEARCH),
    Mutant(
        "experiments/rungs.py",
        "train.warmup_epochs * first_epochs / train.epochs",
        "train.warmup_epochs",
        SEARCH,
    ),
    Mutant("experiments/rungs.py", "if found.train.epochs < epochs:", "if False:", SEARCH),
    Mutant("experiments/rungs.py", "if candidate.name not in kept and", "if", SEARCH),
    Mutant(
        "data/datasets.py",
        "_part(split, shuffled[count:]), _part(split, shuffled[:count])",
        "_part(split, shuffled), _part(split, shuffled[:count])",
        "data/test_memory.py",
    ),
    Mutant(
        "models/external.py",
        "mixed = self.run(move_class_token(tokens, self.readout))",
        "mixed = self.run(tokens)",
        EXTERNAL,
    ),
    Mutant(
        "models/external.py",
        '{"use_cache": False} if',
        '{"use_cache": True} if',
        EXTERNAL,
    ),
    Mutant(
        "models/external.py",
        "torch.stack([-tokens[0], tokens[1]])",
        "torch.stack([tokens[0], tokens[1]])",
        EXTERNAL,
    ),
    Mutant("models/hugging_face.py", "nn.init.zeros_(table.weight)", "pass", EXTERNAL),
    Mutant("models/hugging_face.py", "config.rescale_every = 0", "pass", EXTERNAL),
    Mutant("models/hugging_face.py", "(start | settings)", "(settings | start)", EXTERNAL),
    Mutant("models/published.py", 'move_class_token_back(value, "middle")', "value", PUBLISHED),
    Mutant(
        "models/published.py",
        'SUFFIXES = ("", "_b", "_c", "_c_b")',
        'SUFFIXES = ("", "_b", "_c_b", "_c")',
        PUBLISHED,
    ),
    Mutant(
        "models/published.py", 'state = checkpoint["model_ema"]', 'state = checkpoint["model"]', PUBLISHED
    ),
    Mutant("models/published.py", "weights_only=True", "weights_only=False", PUBLISHED),
    Mutant("models/mamba.py", "mixed = mixed / len(self.scans)", "mixed = mixed / 4", "models/test_mamba.py"),
    Mutant("models/mamba.py", "math.ceil(width / 16)", "math.ceil(inner / 16)", "models/test_published.py"),
    Mutant("report/sensitivity.py", "reading.fixed.copy_(order)", "pass", SENSITIVITY),
    Mutant("report/sensitivity.py", "- mean) / deviation", ") / deviation", SENSITIVITY),
    Mutant("orders/resample.py", "invert(order).cpu()", "order.cpu()", RESAMPLE),
    Mutant("orders/named.py", "if found.grid != grid:", "if False:", RESAMPLE),
    Mutant("orders/lists.py", "side * side != len(numbers)", "False", RESAMPLE),
    Mutant("orders/files.py", 'content.get("format", FILE_FORMAT)', "FILE_FORMAT", ORDER),
    Mutant("data/moved.py", "torch.from_numpy(room / size)", "torch.from_numpy(size / room)", MOVED),
    Mutant("data/moved.py", "where * (room - size)", "where * room", MOVED),
    Mutant("data/moved.py", "-angle.sin() / ratio", "angle.sin() / ratio", MOVED),
    Mutant("data/moved.py", "2 * np.pi *", "np.pi *", MOVED),
    Mutant("models/patches.py", "order.amin() < 0 or order.amax()", "order.amax()", PATCHES),
    Mutant("models/patches.py", "self.pos_embed[0, 1:]", "self.pos_embed[0, :-1]", PATCHES),
    Mutant("runs/verdict.py", "max(half, ERRORS * mean.image_error)", "ERRORS * sem", "runs/test_verdict.py"),
    Mutant("runs/verdict.py", "max(half, ERRORS", "max(0.0, ERRORS", "runs/test_verdict.py"),
    Mutant("experiments/rungs.py", "order = replace(order, learning_rate=None, clip=None)", "pass", SEARCH),
    Mutant(
        "models/patches.py", "nn.LayerNorm(pixels) if pixel_norm", "nn.LayerNorm(pixels) if True", PATCHES
    ),
    Mutant("orders/learner.py", "SPREAD = 0.5", "SPREAD = 1.0", "orders/test_learner.py"),
    Mutant("data/inputs.py", "-mean / deviation", "mean / deviation", LOADING),
    Mutant("data/inputs.py", "GREY = (0.299, 0.587, 0.114)", "GREY = (0.114, 0.587, 0.299)", LOADING),
    Mutant(
        "data/transform.py", "round(side * RESIZE) if self.crop else side", "round(side * RESIZE)", LOADING
    ),
    Mutant(
        "runs/loading.py",
        "self.order if self.policy is None else",
        "None if self.policy is None else",
        LOADING,
    ),
    Mutant("runs/loading.py", "directory.data() or numbered(own,", "numbered(own,", "cli/test_predict.py"),
    Mutant("runs/export.py", "if not apart <= TOLERANCE", "if apart > 10**6 + TOLERANCE", EXPORT),
    Mutant(
        SEGMENT_ATTENTION,
        "if torch.compiler.is_exporting():  # the views of `_skewed`",
        "if False:  # the views of",
        EXPORT,
    ),
    Mutant("data/loader.py", "if 0 < len(dataset.train) < batch_size:", "if False:", "data/test_loader.py"),
]


def mutate(copy: Path, mutant: Mutant) -> str:
    """Write a mutant into a copy of the source; the text that it replaces."""
    file = copy / "reorder" / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1 or mutant.old == mutant.new:
        raise SystemExit(
            f"{mutant.file}: {mutant.old!r} occurs {text.count(mutant.old)} times; mend the table"
        )
    file.write_text(text.replace(mutant.old, mutant.new))
    return text


def outcome(copy: Path, tests: list[str], seconds: int | None = SECONDS) -> str:
    """What becomes of a copy of the source in tests."""
    settings = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            env=os.environ | settings | {"MPLBACKEND": "agg"},
            cwd=copy.parent,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return HANGS
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"pytest ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return CAUGHT if done.returncode else SURVIVES


def copies(where: Path, number: int) -> "queue.Queue[Path]":
    """So many copies of the source, each for one process at a time."""
    free: queue.Queue[Path] = queue.Queue()
    for each in range(number):
        copy = where / str(each) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        free.put(copy)
    return free


def tried(mutant: Mutant, free: "queue.Queue[Path]") -> str:
    """What becomes of a mutant in its tests."""
    copy = free.get()
    before = mutate(copy, mutant)
    try:
        return outcome(copy, [str(TESTS / test) for test in mutant.tests.split()])
    finally:
        (copy / "reorder" / mutant.file).write_text(before)
        free.put(copy)


def said(mutant: Mutant) -> str:
    return f"{mutant.file}: {' '.join(mutant.old.split())}  ->  {' '.join(mutant.new.split()) or 'nothing'}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the wrong programs that the tests notice.")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("text", nargs="*", help="only mutants whose file or text holds one of these")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.text or any(text in said(m) for text in options.text)]
    with tempfile.TemporaryDirectory() as where, ThreadPoolExecutor(options.jobs) as pool:
        free = copies(Path(where), options.jobs)
        copy = free.get()
        tests = dict.fromkeys(str(TESTS / test) for mutant in chosen for test in mutant.tests.split())
        if outcome(copy, list(tests), seconds=None) != SURVIVES:
            raise SystemExit("the tests do not pass without a mutant either")
        free.put(copy)
        survivors = []
        for mutant, found in zip(chosen, pool.map(lambda m: tried(m, free), chosen), strict=True):
            print(f"{found:8}  {said(mutant)}", flush=True)
            survivors += [mutant] if found == SURVIVES else []
    caught = len(chosen) - len(survivors)
    print(f"\n{caught} of {len(chosen)} caught ({caught / len(chosen):.1%})")
    for mutant in survivors:
        print(f"survivor: {said(mutant)}: {mutant.why or 'no test notices it; write one'}")
    sys.exit(caught < LEAST * len(chosen) or any(not mutant.why for mutant in survivors))


if __name__ == "__main__":
    main()
