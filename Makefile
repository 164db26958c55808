# Everything happens in .venv, made by the Python that PYTHON names (3.11 or newer). Nothing here needs a C compiler.
#
#   make demo      train a network on handwritten digits
#   make test      run the tests, in two processes. WORKERS=8: in eight
#   make portable PYTHON=python3.13 VENV=build/python3.13  the tests of what differs between versions of Python, for two minutes
#   make lint      style, types, who may import whom
#   make nightly   the tests again, with the slow ones and many more random cases
#   make bench     tilegrad beside its peers, for hours; goes on where it was stopped. ROWS=softmax: some rows
#   make kernels-diff REV=main~5  the kernels of the benchmark's programs in two revisions; ROWS=softmax: some rows
#   make bench-revisions REV=main~5  the time of the benchmark's rows beside another revision's; ROWS=softmax: some rows
#   make corpus    programs with random sizes beside PyTorch; ARGS="--candidates 12": their estimates beside their times
#   make constants what each constant of the optimizer is worth: moved by a quarter, on the corpus; ARGS="--only shaper": some
#   make marks     whether the tests of each row notice that its feature breaks: rows that changed. ROWS="F2.4 R3.4": some rows, ROWS=--again: all, for an hour
#   make docs      the documentation site, into build/site
#   make conformance   all conformance cases, for minutes, and docs/conformance.md
#   make clean     remove what these commands made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# A file's tests run in one process, in their order; tests/conftest.py says in which order files come.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What rests on the interpreter: its frames and code objects, its buffers, its errors, and what it says of functions.
PORTABLE := $(addprefix tests/,base ir error capture typing io/test_interchange.py) \
  $(patsubst %,tests/torch/test_%.py,names members errors wrong_calls tensor modules quick_calls)
# Whose calls wait: what the nightly run compares with nodes.
EAGER := $(addprefix tests/,tensor engine grad nn torch capture field_notes scale)
# What runs with memory beside guard pages, in some twenty minutes: on both sides where buffers are slices of others.
GUARDED := $(addprefix tests/,guarded engine schedule nn grad capture field_notes lower)
GUARDED_BEFORE := $(addprefix tests/,engine schedule capture)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test portable lint nightly bench bench-diff bench-revisions kernels-diff corpus constants status marks docs conformance clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(PYTEST)

portable: $(VENV)/.test
	$(PYTEST) $(PORTABLE)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/typing/user_script.py tests/typing/second_script.py
	$(BIN)/lint-imports

# With TILEGRAD_SIZES=2 what a plan for a range of sizes gives is compared with that of one for the size.
# Of eager code a second time with TILEGRAD_SEGMENTS=2, which compares equal segments with their nodes:
# under TEMPLATES=2 no call waits.
# With GUARD_PAGES a kernel that reads or writes outside a buffer ends its process, which counts as a failure.
# docs/nightly.md says how it went, docs/marks.md what became of the mutants.
nightly: $(VENV)/.test
	-TILEGRAD_VERIFY=2 TILEGRAD_TEMPLATES=2 TILEGRAD_SIZES=2 $(PYTEST) -m "nightly or not nightly" --hypothesis-profile=nightly --junitxml=build/nightly.xml
	-TILEGRAD_SEGMENTS=2 $(PYTEST) $(EAGER) --junitxml=build/nightly-segments.xml
	-GUARD_PAGES=after $(PYTEST) $(GUARDED) --junitxml=build/nightly-after.xml
	-GUARD_PAGES=before $(PYTEST) $(GUARDED_BEFORE) --junitxml=build/nightly-before.xml
	-GUARD_PAGES=after PYTHONPATH=$(CURDIR)/tests/guarded:$(CURDIR) $(BIN)/python -m tilegrad fuzz --minutes 5
	-$(BIN)/python -m tests.marks.run
	$(BIN)/python -m tests.nightly build/nightly.xml --again build/nightly-segments.xml --guarded build/nightly-after.xml build/nightly-before.xml

# On Linux PyTorch comes with CUDA, which is large, unless PIP_EXTRA_INDEX_URL names an index of CPU builds.
bench: $(VENV)/.peers
	$(BIN)/python bench/peers.py '$(ROWS)'

# The last two results of this machine; or OLD=file NEW=file.
bench-diff: | $(BIN)/python
	$(BIN)/python bench/report.py $(OLD) $(NEW)

# What this tree's compiler makes of the rows of the benchmark, and what another revision's does.
kernels-diff: $(VENV)/.test
	PYTHONPATH=$(CURDIR) $(BIN)/python bench/kernels.py '$(REV)' --rows '$(ROWS)'

# This tree's time for the rows of the benchmark beside another revision's, in turns.
bench-revisions: $(VENV)/.test
	PYTHONPATH=$(CURDIR) $(BIN)/python bench/revisions.py '$(REV)' '$(ROWS)'

# Programs with random sizes, whose figures go to bench/results.
corpus: $(VENV)/.test
	PYTHONPATH=$(CURDIR) $(BIN)/python bench/corpus.py $(or $(ARGS),--peers)

# What the constants of optimize/ are worth: each moved by a quarter, on kernels of the corpus.
constants: $(VENV)/.test
	PYTHONPATH=$(CURDIR) $(BIN)/python bench/constants.py $(ARGS)

# docs/status.md from the row marks of the tests.
status: $(VENV)/.test
	$(BIN)/python -m tilegrad.tools.status

# docs/marks.md from mutants of the package, one for each row.
marks: $(VENV)/.test
	$(BIN)/python -m tests.marks.run $(ROWS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# docs/conformance.md from running every conformance case.
conformance: $(VENV)/.test
	TILEGRAD_THREADS=1 $(BIN)/python -m tests.conformance.report

clean:
	rm -rf $(VENV) build *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp an extra: installed again when pyproject.toml changes.
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev $(VENV)/.docs $(VENV)/.peers: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(PIP) install --editable ".[$*]"
	@touch $@
