# The README's two commands are `make run` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DATA_DIR ?= $(HOME)/.cache/papfl
# Flower would otherwise build a second environment of several gigabytes for every run.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION = 1
export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
export PAPFL_DATA_DIR = $(DATA_DIR)

.PHONY: help docker-image docker-up docker-run docker-down test-docker test-recovery mutants fuzz audit long-haul run test test-slow lint proto proto-check bench results install install-dev install-bench warm-up clean

help: ## list every target
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

run: install warm-up ## install, fetch MNIST, train on Ray virtual clients, print the result table
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/papfl run --preset quick --data-dir "$$PAPFL_DATA_DIR" --out-dir runs --run-name quick-$$(date +%Y%m%d-%H%M%S)

test: install-dev warm-up ## install, fetch MNIST, pass the tests (unit and integration; one real `flwr run`)
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest

test-slow: install-dev warm-up ## the tests that take minutes
	$(BIN)/papfl data fetch mnist cifar10 --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest -m slow

lint: install-dev ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

proto: install-dev ## regenerate the wire format's code
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. common/channel/channel.proto

proto-check: proto ## fail if the committed code is not what the compiler writes
	git diff --exit-code -- common/channel/channel_pb2.py common/channel/channel_pb2.pyi

bench: install-bench warm-up ## every figure that the docs quote, measured here
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

results: install-bench ## tables and figures from the committed result files
	$(BIN)/papfl report --results docs/results --out docs/report

# A deployment in containers (docs/deployment.md). DATA: a folder with the data sets, instead of a volume that is filled here.
NODES ?= 4
ROUNDS ?= 5
DATASET ?= mnist
RUN ?= run-$$(date +%Y%m%d-%H%M%S)
COMPOSE = docker compose -f docker-compose.yml -f deploy/nodes.yml
RUN_OPTIONS ?=

docker-image: ## build the image
	DOCKER_BUILDKIT=1 docker build $(BUILD_OPTIONS) -t papfl .

docker-up: docker-image ## a deployment in containers: NODES=4 DATASET=mnist
	mkdir -p deploy
	docker run --rm --user 0 -v "$$PWD/deploy":/deploy papfl deploy init --folder /deploy --nodes $(NODES) --owner 10001
	$(if $(DATA),,$(COMPOSE) run --rm data $(DATASET))
	$(COMPOSE) up -d

# The last node never trains: it releases one context and gets a model.
docker-run: ## train in it: ROUNDS=5
	$(COMPOSE) run --rm control deploy run --folder /deploy --address superlink:8000 --out-dir /results --data-dir /data \
		--dataset $(DATASET) --num-rounds $(ROUNDS) --run-name $(RUN) \
		--num-participating $$(( $$($(COMPOSE) config --services | grep -c ^supernode-) - 1 )) --num-future 1 $(RUN_OPTIONS)

docker-down: ## remove containers and networks; volumes (ledgers, keys, database) stay
	$(COMPOSE) down

test-recovery: install-dev warm-up ## kill -9 of every kind of process, and a cut network (20 minutes)
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m pytest -m recovery -s

mutants: install-dev warm-up ## plant bugs, one at a time, in a copy: a named test must catch each
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m tests.mutants

fuzz: install-dev warm-up ## a million damaged and adversarial inputs at every door
	$(BIN)/python -m pip install --quiet -e '.[fuzz]'
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m tests.hostile.fuzz

audit: install-dev warm-up ## attacks on real runs: which epsilon do they refute?
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/papfl audit --data-dir "$$PAPFL_DATA_DIR" --out docs/benchmarks/audit.json

long-haul: install-dev warm-up ## thousands of rounds: is one as cheap at the end?
	$(BIN)/papfl data fetch mnist --data-dir "$$PAPFL_DATA_DIR"
	$(BIN)/python -m benchmarks.long_haul --data-dir "$$PAPFL_DATA_DIR"

test-docker: install-dev ## the whole path in containers
	$(BIN)/python -m pytest -m docker -s

warm-up: ## compile codec and gradient kernels once, into the cache that all processes share
	$(BIN)/python -m client_app.warm_up

install: $(VENV)/.installed ## make .venv and install papfl
install-dev: $(VENV)/.installed-dev ## with what tests need
install-bench: $(VENV)/.installed-bench ## with what benchmarks need

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

clean: ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
