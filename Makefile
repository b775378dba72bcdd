# The README's two commands are `make run` and `make test`; the rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DATA_DIR ?= $(HOME)/.cache/papfl
# Flower would otherwise build a second environment of several gigabytes for every run.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION = 1
export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
export PAPFL_DATA_DIR = $(DATA_DIR)

.PHONY: docker-image docker-up docker-run docker-down test-docker test-recovery mutants fuzz audit long-haul run test test-slow lint proto proto-check bench results install install-dev install-bench warm-up clean

# Install, fetch MNIST, train on Ray virtual clients with a progress display, print the result table.
run: install warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/papfl run --preset quick --data-dir "$$PAPFL_DATA_DIR" --out-dir runs --run-name quick-$$(date +%Y%m%d-%H%M%S)

# Install, fetch MNIST, pass the tests (unit and integration; one real `flwr run` on Ray).
test: install-dev warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest

test-slow: install-dev warm-up
	$(BIN)/papfl data fetch mnist cifar10 --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest -m slow

lint: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Regenerate the wire format's code; `make proto-check` fails if the committed file is not what the compiler writes.
proto: install-dev
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. common/channel/channel.proto

proto-check: proto
	git diff --exit-code -- common/channel/channel_pb2.py common/channel/channel_pb2.pyi

# Every figure that the README and docs quote, measured here.
bench: install-bench warm-up
	$(BIN)/papfl data fetch mnist cifar10 --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.gradients
	$(BIN)/python -m benchmarks.run_cost --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.codec
	$(BIN)/python -m benchmarks.exactness
	$(BIN)/python -m benchmarks.channels
	$(BIN)/python -m benchmarks.messages --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.sweeps --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.deployment --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.picture

# Tables and figures from the committed result files.
results: install-bench
	$(BIN)/papfl report --results docs/results --out docs/report

# A deployment in containers (docs/deployment.md). DATA: a folder with the data sets, instead of a volume that is filled here.
NODES ?= 4
ROUNDS ?= 5
DATASET ?= mnist
RUN ?= run-$$(date +%Y%m%d-%H%M%S)
COMPOSE = docker compose -f docker-compose.yml -f deploy/nodes.yml
RUN_OPTIONS ?=

docker-image:
	DOCKER_BUILDKIT=1 docker build $(BUILD_OPTIONS) -t papfl .

docker-up: docker-image
	mkdir -p deploy
	docker run --rm --user 0 -v "$$PWD/deploy":/deploy papfl deploy init --folder /deploy --nodes $(NODES) --owner 10001
	$(if $(DATA),,$(COMPOSE) run --rm data $(DATASET))
	$(COMPOSE) up -d

# The last node never trains: it releases one context and gets a model.
docker-run:
	$(COMPOSE) run --rm control deploy run --folder /deploy --address superlink:8000 --out-dir /results --data-dir /data \
		--dataset $(DATASET) --num-rounds $(ROUNDS) --run-name $(RUN) \
		--num-participating $$(( $$($(COMPOSE) config --services | grep -c ^supernode-) - 1 )) --num-future 1 $(RUN_OPTIONS)

# Containers and networks go; volumes (ledgers, keys, database) stay.
docker-down:
	$(COMPOSE) down

# Kill -9 of every kind of process, and a cut network, on a federation of real processes.
test-recovery: install-dev warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest -m recovery -s

# Plants bugs that the field has seen, one at a time, in a copy of the code: a named test must catch each.
mutants: install-dev warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m tests.mutants

# A million damaged and adversarial inputs at every door, guided by coverage.
fuzz: install-dev warm-up
	$(BIN)/python -m pip install --quiet -e '.[fuzz]'
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m tests.hostile.fuzz

# Attacks on real runs: which epsilon do they refute? Then thousands of rounds: is a round as cheap at the end?
audit: install-dev warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/papfl audit --data-dir "$$PAPFL_DATA_DIR" --out docs/benchmarks/audit.json

long-haul: install-dev warm-up
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.long_haul --data-dir "$$PAPFL_DATA_DIR"

# The whole path for real: image, four nodes, a run, its parity with the run in this process, and the end.
test-docker: install-dev
	$(BIN)/python -m pytest -m docker -s

# Compile the codec and the gradient kernels once, into the cache that all later processes share.
warm-up:
	$(BIN)/python -m client_app.warm_up

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev
install-bench: $(VENV)/.installed-bench

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'papfl needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python's venv module is missing (Debian: apt install python3-venv)"; exit 1; }

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet -e '.[dev,bench]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
