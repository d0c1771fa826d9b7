"""A figure that a notebook shows without pyplot. Only `plot` imports this: it needs matplotlib."""

from __future__ import annotations

import io

import matplotlib.figure


class Figure(matplotlib.figure.Figure):
    """A figure outside of pyplot: it needs no display, and adds nothing to pyplot's state."""

    def _repr_png_(self) -> bytes:
        # Notebooks draw figures of pyplot alone by themselves.
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()
