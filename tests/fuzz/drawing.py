"""Reports without their drawings, which take most of their time."""

import io
from collections.abc import Callable
from typing import Any
from unittest import mock

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


def without_drawing(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work that draws; figures are made, but not drawn: a file gets one pixel."""
    pixel = io.BytesIO()
    Image.new("RGB", (1, 1)).save(pixel, "PNG")

    def save(figure: Figure, file: Any, **options: Any) -> None:
        if hasattr(file, "write"):
            file.write(pixel.getvalue())
        else:
            with open(file, "wb") as opened:
                opened.write(pixel.getvalue())

    def draw(canvas: FigureCanvasAgg) -> None:
        canvas.get_renderer()

    with mock.patch.object(Figure, "savefig", save), mock.patch.object(FigureCanvasAgg, "draw", draw):
        return work(*arguments)
