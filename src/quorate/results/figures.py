"""Figures that a notebook shows. Matplotlib is slow to import: import this where it is needed."""

from io import BytesIO

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that a notebook shows at the end of a cell. It belongs to no window."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()
