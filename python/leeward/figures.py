"""A figure that a notebook shows without pyplot. Imported where something is drawn: it needs matplotlib."""

from __future__ import annotations

import io

import matplotlib.figure


class Figure(matplotlib.figure.Figure):
    """A figure of its own: nothing of it stays behind in the state of pyplot, and no display is needed."""

    def _repr_png_(self) -> bytes:
        # Notebooks know pyplot's figures only.
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()
