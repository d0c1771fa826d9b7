"""Progress bars, by tqdm where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, unit: str, wanted: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """A function that is told how much is done, of how much.

    `wanted`: True shows a bar and needs tqdm, None shows one where tqdm is installed and somebody looks at it, False shows none.
    """
    if wanted is False:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if wanted:
            raise
        yield None
        return
    # `disable=None`: no bar where the output is no terminal. A notebook's bar has no such doubts.
    with tqdm(desc=title, unit=unit, disable=None if wanted is None else False, leave=False) as shown:

        def tell(done: int, total: int) -> None:
            if shown.total != total:
                shown.reset(total=total)
            shown.update(done - shown.n)

        yield tell
