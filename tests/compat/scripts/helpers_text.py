import contextlib
import io

from tinygrad.helpers import (
    Timing,
    ansilen,
    ansistrip,
    colored,
    getenv,
    strip_parens,
    time_to_str,
    tqdm,
    trange,
)  # fmt: skip

assert colored("x", None) == "x"
assert ansistrip(colored("word", "green")) == "word" and ansilen(colored("word", "RED")) == 4
assert strip_parens("(a+b)") == "a+b" and strip_parens("(a)+(b)") == "(a)+(b)"
assert getenv("A_VARIABLE_NOBODY_SET") == 0 and getenv("A_VARIABLE_NOBODY_SET", "x") == "x"
assert "ms" in time_to_str(0.05) and "us" in time_to_str(1e-5)
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    with Timing("took "):
        pass
    with Timing("more ", lambda et: f", {et >= 0}"):
        pass
    with Timing(enabled=False):
        pass
    seen = []
    for i in (t := trange(5)):
        seen.append(i)
        t.set_description(f"at {i}")
    words = list(tqdm(["a", "b"], desc="words"))
    with tqdm(total=10, unit="B") as bar:
        bar.update(10)
lines = out.getvalue().splitlines()
assert lines[0].startswith("took ") and lines[1].endswith(", True") and len(lines) == 2
assert seen == [0, 1, 2, 3, 4] and words == ["a", "b"]
shown = err.getvalue()
assert "at 4" in shown and "5/5" in shown and "words" in shown and "10/10" in shown
checked = 9
