"""Random programs beside NumPy: `python -m tilegrad fuzz --minutes 5`.

    program.py        what a program is: steps, what is read of it, how often it runs
    instructions/     the instructions: how each is drawn, its line of tilegrad, its NumPy
    meaning.py        the values of a program, in NumPy, with a bound of float32's error
    draw.py           a program from a seed
    script.py         a program as a file that fails where tilegrad differs
    special.py        cases of another form: long reductions, and random numbers under `jit`
    chains.py         cases of another form: views of views, by themselves
    loops.py          cases of another form: eager loops with a state, beside NumPy
    drawn_loops.py    long and short ones from a seed
    statements.py     their statements, with tensors and with NumPy
    themes.py         which statements meet in a short one
    changing.py       their numbers, which change from step to step
    modes.py          eager, captured, without Opts, other targets, the reference device, PyTorch
    run.py            the child process: runs scripts, and says what goes wrong
    shrink.py         a case that fails, made small while it fails
    loop.py           many cases in child processes, which may crash or hang

The meaning of a program is NumPy's, with floats in float64; nothing of it is computed by the
package. Where PyTorch is installed, a mode runs the programs there, which checks the meanings.
"""
