"""HTML pages inside of a notebook."""

from __future__ import annotations

import html


def framed(page: str, title: str) -> str:
    """The page in an `iframe`, so that its styles and the notebook's do not mix."""
    source = html.escape(page, quote=True)
    return f'<iframe srcdoc="{source}" style="width:100%;height:640px;border:0" title="{html.escape(title)}"></iframe>'
