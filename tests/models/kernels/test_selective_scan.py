"""The selective scan against its recurrence, written out in numpy, and its gradients against autograd's."""

# B images, N slots, D channels, S states per channel

import multiprocessing
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from reorder.models.kernels import selective_scan as module
from reorder.models.kernels import threads
from reorder.models.kernels.selective_scan import selective_scan, selective_scan_reference

NAMES = ("x", "delta", "A", "B", "C", "D")
LENGTHS = (1, 2, 3, 7, 64, 65, 197, 1000)


def inputs(
    slots: int, channels: int = 21, states: int = 5, images: int = 2, kind: torch.dtype = torch.float64
) -> Any:
    """x, delta, A, B, C, D with decays from slow to fast."""
    generator = torch.Generator().manual_seed(slots)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = [
        normal(images, slots, channels),
        softplus(normal(images, slots, channels) - 2),
        -torch.exp(normal(channels, states)),
        normal(images, slots, states),
        normal(images, slots, states),
        normal(channels),
    ]
    return [tensor.to(kind).requires_grad_() for tensor in tensors]


def recurrence(x, delta, A, B, C, D):  # type: ignore[no-untyped-def]
    """h_t = exp(delta_t A) h_{t-1} + delta_t B_t x_t, y_t = C_t h_t + D x_t, one number at a time in time."""
    images, slots, channels = x.shape
    y = np.zeros(x.shape)
    for b in range(images):
        h = np.zeros(A.shape)
        for t in range(slots):
            for d in range(channels):
                h[d] = np.exp(delta[b, t, d] * A[d]) * h[d] + delta[b, t, d] * B[b, t] * x[b, t, d]
                y[b, t, d] = C[b, t] @ h[d] + D[d] * x[b, t, d]
    return y


def arrays(tensors: Any) -> list[np.ndarray]:
    return [tensor.detach().double().numpy() for tensor in tensors]


@pytest.mark.parametrize("path", ["numba", "torch"])
@pytest.mark.parametrize("slots", LENGTHS)
def test_scan_is_the_recurrence(slots: int, path: str) -> None:
    tensors = inputs(slots)
    expected = recurrence(*arrays(tensors))
    np.testing.assert_allclose(selective_scan(*tensors, path=path).detach(), expected, rtol=1e-11, atol=1e-11)
    single = [tensor.detach().float() for tensor in tensors]
    np.testing.assert_allclose(selective_scan(*single, path=path), expected, rtol=2e-5, atol=2e-5)


def test_reference_is_the_recurrence() -> None:
    tensors = inputs(33)
    np.testing.assert_allclose(
        selective_scan_reference(*tensors).detach(), recurrence(*arrays(tensors)), atol=1e-12
    )


@pytest.mark.parametrize("path", ["numba", "torch"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("slots", LENGTHS)
def test_gradients_are_those_of_the_reference(slots: int, reverse: bool, path: str) -> None:
    tensors = inputs(slots)
    upstream = torch.randn(2, slots, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(selective_scan_reference(*tensors, reverse=reverse), tensors, upstream)
    actual = torch.autograd.grad(selective_scan(*tensors, path=path, reverse=reverse), tensors, upstream)
    for name, one, other in zip(NAMES, actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=f"gradient of {name}")


@pytest.mark.parametrize(("channels", "states"), [(1, 1), (16, 16), (80, 3), (130, 16), (768, 2)])
def test_single_precision_gradients_for_any_width(channels: int, states: int) -> None:
    tensors = inputs(50, channels, states)
    single = [tensor.detach().float().requires_grad_() for tensor in tensors]
    upstream = torch.randn(2, 50, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.autograd.grad(selective_scan_reference(*tensors), tensors, upstream)
    actual = torch.autograd.grad(selective_scan(*single, path="numba"), single, upstream.float())
    for one, other in zip(actual, expected, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("path", ["numba", "torch"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradcheck(path: str, reverse: bool) -> None:
    tensors = inputs(19, channels=3, states=2, images=2)
    assert torch.autograd.gradcheck(
        lambda *t: selective_scan(*t, path=path, reverse=reverse), tensors, fast_mode=True
    )


def test_reverse_reads_from_the_end() -> None:
    x, delta, A, B, C, D = arrays(inputs(23))
    backwards = recurrence(x[:, ::-1], delta[:, ::-1], A, B[:, ::-1], C[:, ::-1], D)[:, ::-1]
    for path in ("numba", "torch"):
        np.testing.assert_allclose(
            selective_scan(*inputs(23), path=path, reverse=True).detach(), backwards, rtol=1e-11, atol=1e-11
        )


def test_a_slow_decay_does_not_drift() -> None:
    """With exp(delta A) next to 1 the scan is a running sum; single precision must keep it one."""
    slots = 4000
    x, one = torch.ones(1, slots, 16), torch.ones(1, slots, 1)
    y = selective_scan(
        x, torch.ones(1, slots, 16), torch.full((16, 1), -1e-9), one, one, torch.zeros(16), path="numba"
    )
    assert torch.equal(y[0, :, 0], torch.arange(1.0, slots + 1))


def test_extreme_steps_are_finite_and_nan_is_kept() -> None:
    x, delta, A, B, C, D = (tensor.detach().float() for tensor in inputs(20))
    assert selective_scan(x, delta * 1e4, A * 1e3, B, C, D, path="numba").isfinite().all()
    broken = A.clone()
    broken[4] = torch.nan
    y = selective_scan(x, delta, broken, B, C, D, path="numba")
    assert y[:, :, 4].isnan().all()
    assert y[:, :, :4].isfinite().all()


def test_half_precision_is_computed_in_single() -> None:
    halves = [tensor.detach().bfloat16() for tensor in inputs(40)]
    for path in ("numba", "torch"):
        y = selective_scan(*halves, path=path)
        assert y.dtype == torch.bfloat16
        expected = recurrence(*arrays(halves))
        np.testing.assert_allclose(y.float(), expected, rtol=1e-2, atol=1e-2)


def test_results_do_not_depend_on_threads() -> None:
    tensors = inputs(65, channels=100, kind=torch.float32)
    before = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        y = selective_scan(*tensors, path="numba")
        results.append([y.detach(), *torch.autograd.grad(y.sin().sum(), tensors)])
    torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_threads_may_scan_at_the_same_time() -> None:
    tensors = [tensor.detach() for tensor in inputs(65, channels=64, kind=torch.float32)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    expected, results = selective_scan(*tensors, path="numba"), []  # type: ignore[var-annotated]
    workers = [
        threading.Thread(
            target=lambda: results.extend(selective_scan(*tensors, path="numba") for _ in range(10))
        )
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(before)
    assert len(results) == 40
    assert all(torch.equal(result, expected) for result in results)


def test_python_threads_stand_in_for_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_openmp", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    tensors = inputs(20, channels=100)
    expected = recurrence(*arrays(tensors))
    np.testing.assert_allclose(selective_scan(*tensors, path="numba").detach(), expected, atol=1e-11)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_task_runs_once_and_errors_arrive(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    seen: list[int] = []
    threads.run(lambda first, last, into: into.extend(range(first, last)), 23, seen)
    assert sorted(seen) == list(range(23))
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda first, last: 1 // 0, 23)


def _scan_in_child(queue) -> None:  # type: ignore[no-untyped-def]
    tensors = [tensor.detach() for tensor in inputs(30, kind=torch.float32)]
    queue.put(selective_scan(*tensors, path="numba").sum().item())


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_may_scan() -> None:
    tensors = [tensor.detach() for tensor in inputs(30, kind=torch.float32)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    expected = selective_scan(*tensors, path="numba").sum().item()
    torch.set_num_threads(before)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_scan_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == pytest.approx(expected, rel=1e-6)
    child.join()
    assert child.exitcode == 0


@pytest.mark.slow
def test_it_compiles_without_a_graph_break() -> None:
    tensors = inputs(20, kind=torch.float32)
    compiled = torch.compile(
        lambda *t: selective_scan(*t, path="numba") * 2, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(*tensors), 2 * selective_scan(*tensors, path="numba"))


def test_operators_describe_themselves_correctly() -> None:
    torch.library.opcheck(module._scan, (*inputs(20, channels=18, kind=torch.float32), True))


def test_mamba_ssm_gets_slots_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the signature and layout of mamba_ssm: u, delta (B, D, N), B, C (B, S, N)."""

    def selective_scan_fn(u, delta, A, B, C, D):  # type: ignore[no-untyped-def]
        assert u.is_contiguous()
        assert B.is_contiguous()
        swapped = [tensor.transpose(1, 2) for tensor in (u, delta, B, C)]
        return selective_scan_reference(*swapped[:2], A, *swapped[2:], D).transpose(1, 2)

    stand_in = types.ModuleType("mamba_ssm.ops.selective_scan_interface")
    stand_in.selective_scan_fn = selective_scan_fn  # type: ignore[attr-defined]
    for name in ("mamba_ssm", "mamba_ssm.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    tensors = [tensor.detach() for tensor in inputs(9)]
    np.testing.assert_allclose(module._scan_mamba_ssm(*tensors), recurrence(*arrays(tensors)), atol=1e-12)


def test_mamba_ssm_missing_says_how_to_install() -> None:
    with pytest.raises(ValueError, match="pip install mamba-ssm"):
        module._scan_mamba_ssm(*inputs(2))


@pytest.mark.parametrize(("position", "name"), list(enumerate(NAMES)))
def test_bad_shapes_are_named(position: int, name: str) -> None:
    tensors = inputs(5)
    tensors[position] = tensors[position][:-1] if name != "x" else tensors[0][0]
    with pytest.raises(ValueError, match=f"^{name} must be"):
        selective_scan(*tensors)


def test_nothing_to_scan() -> None:
    with pytest.raises(ValueError, match="nothing to scan"):
        selective_scan(*inputs(0))
