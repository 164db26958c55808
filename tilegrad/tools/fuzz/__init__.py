"""Random programs beside NumPy: `python -m tilegrad fuzz --minutes 5`.

    program.py   what a program is, and its text
    steps.py     the instructions: how each is drawn, its line of tilegrad, its meaning in NumPy
    run.py       one program, in this process: does tilegrad say what NumPy says?
    shrink.py    a program that fails, made small while it fails
    loop.py      many programs in child processes, which may crash or hang

The meaning of a program is NumPy's in float64; nothing of it is computed by the package.
"""
