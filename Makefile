# `make run` and `make test` set everything up themselves; they need only Python 3.11+, make and git.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run demo test test-all check-wheel setup check docs pictures bench bench-peers fuzz acceptance adapters browser-test lock clean

# Your own sessions, or a sample library when there are none.
run: $(READY)
	@$(BIN)/python examples/run.py

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: check
	$(BIN)/pytest -n 4 -m "not slow"

# Everything: the slow tests too, and properties with all of their examples.
test-all: check
	SESSIONTREE_THOROUGH=1 $(BIN)/pytest -n 4

# Build the wheel and the sdist, and try the wheel in an empty environment.
check-wheel: $(READY)
	$(BIN)/python .ci/check_wheel.py

check: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference of all commands, and the output of the commands that pages show.
docs: $(READY)
	$(BIN)/python -m sessiontree.cli.reference > docs/cli-reference.md
	$(BIN)/python docs/console.py

pictures: $(READY)
	$(BIN)/python docs/pictures/draw.py
	$(BIN)/python docs/pictures/screens.py
	$(BIN)/python docs/pictures/draw_web.py

bench: $(READY)
	$(BIN)/python -m benchmarks

# Published packages beside ours, installed into scratch folders: about half an hour.
bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peer_packages $(PEERS)

fuzz: $(READY)
	$(BIN)/python -m fuzz --seconds 600

acceptance: $(READY)
	$(BIN)/python -m acceptance

# Each adapter in an environment of its own, with the pinned and the newest version of its framework.
adapters: $(READY)
	$(BIN)/python -m tests_adapters $(ADAPTERS)

browser-test: $(READY)
	$(BIN)/pytest acceptance/browser

setup: $(READY)

$(READY): pyproject.toml requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "sessiontree needs Python 3.11 or newer; none was found"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Pin the newest versions that pyproject.toml allows: its dependencies, its extras and the `dev` group.
lock:
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group dev -e ".[all]"
	{ echo '# Pinned tools and dependencies for development and CI; `make lock` rewrites this file.'; \
	  $(BIN)/python -m pip freeze --exclude-editable; } > requirements-dev.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build scratch
