"""Progress bars of tqdm, if it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import MissingExtra


@contextmanager
def bar(title: str, unit: str, wanted: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """Yields a function that shows `(done, total)` in a bar, or None if there is no bar.

    `wanted`: True shows a bar and needs tqdm (`MissingExtra`); False shows none. None shows a bar if
    tqdm is installed and the output is a terminal or a notebook.
    """
    if wanted is False:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if wanted:
            raise MissingExtra("tqdm is missing: pip install 'leeward[notebook]'") from None
        yield None
        return
    # `disable=None`: no bar if the output is no terminal. The bar in notebooks ignores this.
    with tqdm(desc=title, unit=unit, disable=None if wanted is None else False, leave=False) as shown:

        def tell(done: int, total: int) -> None:
            if shown.total != total:
                shown.reset(total=total)
            shown.update(done - shown.n)

        yield tell
