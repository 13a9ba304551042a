"""A trained model for other programs: ONNX, torch.export, or a directory for a hub; checked, then kept."""

import io
import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reorder.orders.disk import replace_file, sync, temporary_name
from reorder.runs.loading import TrainedModel, load

# b images, C channels, H x W pixels

INPUT, OUTPUT = "images", "logits"
TOLERANCE = 1e-4  # of the largest logit: what other kernels may differ by in float32
CHECKED = (1, 3)  # images in a batch
Logits = Callable[[Tensor], Tensor]


def export_onnx(model: TrainedModel, path: Path) -> None:
    """Write an ONNX file of (b, C, H, W) to (b, classes), any b, with the order and all weights in it."""
    with _refusing("ONNX"):
        try:
            import onnx
            import onnxruntime
            from onnxscript import optimizer
        except ImportError as error:
            raise ValueError(f"{error.name} is missing: pip install 'reorder[export]'") from None
        program = torch.onnx.export(
            model,
            (_example(model, 2),),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            optimize=False,  # its rewrite rules take minutes for Mamba's long graph; this is what matters
            verbose=False,
        )
        assert program is not None
        for simplify in (optimizer.inline, optimizer.fold_constants, optimizer.remove_unused_nodes):
            simplify(program.model)
        proto = program.model_proto
        for node in proto.graph.node:
            node.ClearField("metadata_props")  # where each was in this machine's source files
        onnx.helper.set_model_props(proto, {key: json.dumps(value) for key, value in about(model).items()})
        content = proto.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        check_logits(model, lambda images: torch.from_numpy(session.run(None, {INPUT: images.numpy()})[0]))
    replace_file(path, content)


def export_torch(model: TrainedModel, path: Path) -> None:
    """Write what `torch.export.load` reads, a program of (b, C, H, W) to (b, classes), any b."""
    with _refusing("torch.export"):
        shapes = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(model, (_example(model, 2),), dynamic_shapes=shapes)
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files={"reorder.json": json.dumps(about(model))})
        buffer.seek(0)
        check_logits(model, torch.export.load(buffer).module())
    replace_file(path, buffer.getvalue())


def export_hub(model: TrainedModel, path: Path) -> None:
    """Write a directory that huggingface_hub's mixin, and `reorder.load`, load and push."""
    if path.exists():
        raise ValueError(f"{path} exists; choose another directory")
    temporary = temporary_name(path)
    try:
        model.save_pretrained(temporary)
        check_logits(model, load(temporary))
        for file in temporary.iterdir():
            sync(file)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def about(model: TrainedModel) -> dict[str, Any]:
    """What a program that uses the model must know: the order is for information, it is in the model."""
    transform, mean, deviation = model.inputs
    return {
        "classes": model.classes,
        "mean": mean,  # of pixels in 0..1
        "deviation": deviation,
        "size": transform.shape,  # height and width
        "crop": transform.crop,  # of the centre, after a resize to 256/224 of the size
        "grid": model.grid,
        "order": model.order.tolist(),
    }


@torch.no_grad()
def check_logits(model: TrainedModel, exported: Logits) -> None:
    """Refuse what gives other logits than the model, for batches of several sizes."""
    for count in CHECKED:
        images = _example(model, count)
        expected, found = model(images), exported(images)
        apart = float((expected - found).abs().max())
        if not apart <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise ValueError(f"its logits differ by {apart:.2g} from the model's, for {count} images")


def _example(model: TrainedModel, count: int) -> Tensor:
    """Images (b, C, H, W) of noise, the same every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, len(model.inputs.mean), *model.inputs.transform.shape, generator=generator)


@contextmanager
def _refusing(form: str) -> Iterator[None]:
    """Turn whatever an exporter raises into one line, and keep it from talking meanwhile."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            yield
    except Exception as error:  # exporters raise almost anything
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot export this model to {form}: {said[:200]}") from error
    finally:
        logging.disable(logging.NOTSET)
