"""A page that shows every rewrite of a program's graphs and kernels, in a browser.

    VIZ=1 python script.py              serves the page when the script has ended
    python -m tilegrad viz script.py    the same

    with recording() as record:         from tilegrad.base.trace
        x.softmax(1).realize()
    serve(record)                       a block, as in a notebook

A record becomes sections (plans and kernels) of rows (passes, and the rewrites by rules within
them) in `sections`; a state of a row is made when the page asks for it, in `pass_states`; `server`
hands both out. The page is in `page/`. Its graphs are laid out by dagre (MIT licence), which is
there too, so that it needs no network.
"""

from __future__ import annotations

from tilegrad.viz.server import serve

__all__ = ["serve"]
