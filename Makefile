# `make help` lists the targets.

# Python 3.11 is what the pinned torch and DGL run with.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV   ?= .venv
PY     := $(VENV)/bin/python
GO     ?= go
# The kernels use Go's SIMD package; without the experiment they are scalar.
export GOEXPERIMENT := simd
# An older Go fetches the one that go.mod names, also where its packager turned that off.
export GOTOOLCHAIN ?= auto
# Tests are read by several processes, which take what the first of them compiled, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# What pip installs of requirements-NAME.txt: the lock file, whose hashes it checks, where that is for this Python and
# processor (`make lock` writes it); elsewhere what the exact versions in the .txt file need.
LOCKED  := $(shell $(or $(wildcard $(PY)),$(PYTHON)) -c 'import platform, sys; print("yes" * (sys.version_info[:2] == (3, 11) and platform.machine() == "x86_64"))')
PIP     := $(PY) -m pip install --disable-pip-version-check --quiet
install  = $(PIP) $(if $(LOCKED),--require-hashes --requirement requirements-$(1).lock,--requirement requirements-$(1).txt)

GO_SOURCES  := go.mod go.sum $(shell find core capi pybind -name '*_test.go' -prune -o \( -name '*.go' -o -name '*.[chs]' \) -print 2>/dev/null)
GO_PACKAGES := ./core/... ./capi/... ./pybind/... ./examples/go/... ./bench/...
PY_SOURCES  := setup.py python tests bench examples docs/_tools
# Stamps: a target is made again when something that its stamp depends on is newer.
VENV_STAMP  := $(VENV)/.requirements
BUILD_STAMP := $(VENV)/.engine

.DEFAULT_GOAL := help
# every target but files
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "Needs Go (go.mod says which), Python 3.11, gcc, make. PYTHON=... and VENV=... choose others."

# ---- set up -----------------------------------------------------------------

venv: $(VENV_STAMP) ## .venv with torch, DGL and the tools, at pinned versions
$(VENV_STAMP): requirements-dev.txt requirements-dev.lock
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(call install,dev)
	@touch $@

lock: ## requirements-*.lock, after a change of requirements-*.txt; needs the package index
	$(PY) -m tests.lock

build: $(BUILD_STAMP) ## the engine, and the package installed into .venv as it lies here
$(BUILD_STAMP): $(VENV_STAMP) $(GO_SOURCES) setup.py pyproject.toml
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

# ---- check ------------------------------------------------------------------

test: test-go test-py ## Go and Python tests: every kind of case, of the product of cases and sessions a part

test-all: test-go $(BUILD_STAMP) libsar ## Go and Python tests, every case on every session
	$(PY) $(PYTEST) $(EVERY_CASE) --durations=25

test-go: # with the SIMD kernels, and those that a build without them uses; packages that wait take no processor: -p 4
	$(GO) vet $(GO_PACKAGES)
	$(GO) test -p 4 $(GO_PACKAGES)
	GOEXPERIMENT=nosimd $(GO) test ./core/internal/vec/... ./core/kernel/...

# qemu-aarch64-static is Debian's package qemu-user-static. Neoverse N1 has NEON and no SVE.
test-arm64: ## the kernels on NEON, under QEMU
	@mkdir -p build/arm64
	for name in internal/vec kernel; do \
		GOARCH=arm64 CGO_ENABLED=0 $(GO) test -c -o build/arm64/test ./core/$$name || exit 1; \
		for cpu in max neoverse-n1; do \
			echo "core/$$name on $$cpu"; \
			(cd core/$$name && qemu-aarch64-static -cpu $$cpu $(CURDIR)/build/arm64/test) || exit 1; \
		done; \
	done

# The race detector sees the Go heap alone, so a race build keeps the engine's
# buffers there (core/mem), and it does not see what SIMD instructions load and
# store, so it runs the kernels that a build without them uses. Both builds
# overwrite what is freed (sardebug): a later use is a race, a NaN or a fault.
# The second run is of those packages whose tests run SIMD kernels on buffers.
# Packages that wait for deadlines take a processor from nobody: hence -p 4.
test-debug: ## core under the race detector, and with freed buffers overwritten
	GOEXPERIMENT=nosimd $(GO) test -p 4 -race -short -tags sardebug ./core/...
	$(GO) test -short -tags sardebug $(foreach p,internal/vec exchange expr kernel sample session topology,./core/$(p)/...)

# docs/testing.md says what has the mark `full` and is left out otherwise.
EVERY_CASE := -m ''
# So many tests run beside each other: one more than two processors can run, since some wait. A stream that dies ends
# the run.
STREAMS ?= 3
PYTEST  := -m pytest -n $(STREAMS) --max-worker-restart=0

test-py: $(BUILD_STAMP) libsar
	$(PY) $(PYTEST) --durations=25

MATRIX_VENV ?= .venv-dgl2
MATRIX_TESTS ?=
test-matrix: wheel libsar ## the Python tests with torch 2.2 and DGL 2.1, in .venv-dgl2
	test -x $(MATRIX_VENV)/bin/python || $(PYTHON) -m venv $(MATRIX_VENV)
	$(MATRIX_VENV)/bin/python -m pip install --disable-pip-version-check --quiet --requirement requirements-dgl2.txt
	$(MATRIX_VENV)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --force-reinstall dist/sar_gnn-*.whl
	PATH="$(abspath $(MATRIX_VENV))/bin:$$PATH" $(MATRIX_VENV)/bin/python $(PYTEST) $(MATRIX_TESTS)
	@$(MATRIX_VENV)/bin/python -c 'import dgl, sys, torch; print(f"test-matrix: all passed with Python {sys.version.split()[0]}, torch {torch.__version__}, DGL {dgl.__version__}")'

PYG_BEFORE ?= 2.7.0
PYG_HOME := $(abspath build/pyg-before)
PYG_TESTS ?= $(wildcard tests/parity/test_pyg*.py) tests/cli/test_infer_pyg.py
test-matrix-pyg: $(BUILD_STAMP) libsar ## the tests of PyG with the release before the newest, in build/pyg-before
	$(PIP) --no-deps --upgrade --target $(PYG_HOME) torch_geometric==$(PYG_BEFORE)
	PYTHONPATH=$(PYG_HOME) $(PY) $(PYTEST) $(PYG_TESTS)
	@PYTHONPATH=$(PYG_HOME) $(PY) -W ignore -c 'import torch_geometric as p; assert p.__version__ == "$(PYG_BEFORE)"; print(f"test-matrix-pyg: all passed with PyG {p.__version__}")'

test-layers-pyg: $(BUILD_STAMP) ## every layer of PyG in both precisions on 1, 2 and 4 workers, over shared memory and TCP
	$(PY) $(PYTEST) $(EVERY_CASE) tests/parity/test_pyg_layers.py

test-examples: $(BUILD_STAMP) libsar ## every script of examples/, on shipped or generated data
	$(PY) $(PYTEST) $(EVERY_CASE) tests/examples/test_examples.py tests/examples/test_examples_scripts.py

DOCS_STAMP := $(VENV)/.requirements-docs
# not while pip installs the package there too
$(DOCS_STAMP): requirements-docs.txt requirements-docs.lock $(VENV_STAMP) | $(BUILD_STAMP)
	$(call install,docs)
	@touch $@

# Not --quiet: MkDocs then counts no warnings, and --strict finds nothing.
docs: $(BUILD_STAMP) $(DOCS_STAMP) ## the site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m mkdocs build --strict

lint: lint-go lint-py ## gofmt, go vet, staticcheck; ruff, mypy; mypy --strict and pyright on scripts as users write them

lint-go:
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l core capi pybind examples/go bench); test -z "$$unformatted" || { echo "gofmt -w: $$unformatted"; exit 1; }
	$(GO) vet $(GO_PACKAGES)
	$(GO) tool staticcheck $(GO_PACKAGES)
	$(GO) mod tidy -diff

lint-py: $(BUILD_STAMP)
	$(PY) -m ruff check $(wildcard $(PY_SOURCES))
	$(PY) -m mypy
	$(PY) -m mypy --config-file tests/typed/mypy.ini --cache-dir .mypy_cache/strict tests/typed
	$(PY) -m basedpyright --project tests/typed --pythonpath $(PY)
	$(PY) docs/_tools/wrap.py --check $(shell git ls-files '*.md')

FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME (60s)
	@for file in $$(grep -rl '^func Fuzz' --include='*_test.go' core); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$file); do \
	    echo "== $$file $$target"; \
	    $(GO) test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
	  done; \
	done

attacks: $(BUILD_STAMP) ## what strangers, other users and other jobs may try at a job's ports, and two jobs on one port; as root: all of it
	SAR_ATTACKS=1 $(PY) -m pytest $(EVERY_CASE) tests/security/test_attacks.py -s

PROGRAMS ?= 20000
fuzz-programs: $(BUILD_STAMP) ## random programs of message passing against DGL, PROGRAMS of them (20000)
	SAR_RANDOM_PROGRAMS=$(PROGRAMS) $(PY) -m pytest $(EVERY_CASE) tests/parity/test_random_programs.py

MODELS ?= 5000
fuzz-models: $(BUILD_STAMP) ## random layers against PyG, MODELS of them (5000)
	SAR_RANDOM_MODELS=$(MODELS) $(PY) -m pytest $(EVERY_CASE) tests/parity/test_pyg_models.py -s

FAULTS ?= 400
SEED ?= 1
FAULT_OPTIONS ?=
faults: $(BUILD_STAMP) ## FAULTS random faults (400), from SEED (1), in training jobs between network namespaces; needs root
	$(PY) -m tests.faults --faults $(FAULTS) --seed $(SEED) $(FAULT_OPTIONS)

KILLS ?= 50
kills: $(BUILD_STAMP) ## KILLS workers (50) killed at random moments, from SEED (1), in jobs that are started again; their losses
	$(PY) -m tests.kills --kills $(KILLS) --seed $(SEED)

# ---- use --------------------------------------------------------------------

demo: $(BUILD_STAMP) ## trains on the graphs that ship with the repository, with 1 and 2 workers
	$(PY) examples/demo.py

BENCH_STAMP := $(VENV)/.requirements-bench
$(BENCH_STAMP): requirements-bench.txt requirements-bench.lock $(VENV_STAMP)
	$(call install,bench)
	@touch $@

# As people train: half of the elements dropped after every layer but the last.
DROPOUT_ROWS := --dropout 0.5 --policies pool --rows 1:-:metis,2:shm:metis,8:shm:metis,pyg

bench: $(BUILD_STAMP) $(BENCH_STAMP) ## time and memory of an epoch of SAGE against DGL and PyG, and with dropout: tables, JSON, PNG
	$(PY) bench/run.py
	$(PY) bench/run.py $(DROPOUT_ROWS) --name epoch-dropout
	$(PY) bench/plot.py epoch epoch-dropout

bench-gat: $(BUILD_STAMP) $(BENCH_STAMP) ## the same of GAT, 4 heads of 32 and of 128
	$(PY) bench/run.py --model gat --policies pool --rows 1:-:metis,2:shm:metis,2:tcp:metis,8:shm:metis,pyg --name gat
	$(PY) bench/run.py --model gat128 --policies pool --rows 1:-:metis,2:shm:metis,8:shm:metis --rounds 2 --epochs 2 --name gat128
	$(PY) bench/run.py --model gat $(DROPOUT_ROWS) --name gat-dropout
	$(PY) bench/plot.py gat gat128 gat-dropout

bench-pyg: $(BUILD_STAMP) $(BENCH_STAMP) ## layers of PyG on SAR against PyG alone and against DGL's functions: time, memory; PYG="--models gat"
	$(PY) bench/pyg.py $(PYG)
	$(PY) bench/pyg.py --models gat,sage,gcn --dropout 0.5 --name pyg-dropout
	$(PY) bench/pyg.py --workers 8 --models gat,sage,gcn --name pyg-8

bench-links: $(BUILD_STAMP) $(BENCH_STAMP) ## link prediction on the bench graph, 2 workers against PyG alone: time, memory
	$(PY) bench/links.py

bench-messages: $(BUILD_STAMP) $(BENCH_STAMP) ## memory of 1 GiB of messages of PyG, in the engine and in Python
	$(PY) bench/messages.py

profile: $(VENV_STAMP) $(BENCH_STAMP) ## flame graphs and timelines of a worker, for SAGE and GAT, in bench/out
	SAR_SYMBOLS=1 $(PIP) --no-build-isolation --no-deps --editable .
	$(PY) bench/flame.py --model sage
	$(PY) bench/flame.py --model gat
	$(PIP) --no-build-isolation --no-deps --editable .

bench-modes: $(BUILD_STAMP) ## modes of SAR with 8 workers on random parts: time and memory of SAR, SA, one_shot, for SAGE and GAT
	$(PY) bench/run.py --modes --policies pool --name modes
	$(PY) bench/run.py --modes --policies pool --model gat --rounds 2 --epochs 2 --name modes-gat

bench-bf16: $(BUILD_STAMP) $(BENCH_STAMP) ## training under autocast in bfloat16 against float32: time, memory, bytes sent; BF16="--workers 1,2"
	$(PY) bench/bf16.py $(BF16)

bench-bf16-accuracy: $(BUILD_STAMP) $(BENCH_STAMP) ## test accuracy after training in bfloat16 and in float32, on 4 graphs; ACCURACY="--graphs cora --seeds 2"
	$(PY) bench/accuracy_bf16.py $(ACCURACY)

STUDY ?=
study: $(BUILD_STAMP) $(BENCH_STAMP) ## training on the whole graph against samples: accuracy, time, memory, 5 seeds; STUDY="--graphs cora"
	$(PY) bench/study.py $(STUDY)

bench-import: $(BUILD_STAMP) ## how long `import sar` and its names take beyond torch
	$(PY) bench/import_time.py

bench-less: $(BUILD_STAMP) ## what is kept for backward: layers as they are, sar.remat, sar.nn, for SAGE and GAT
	$(PY) bench/run.py --less --policies pool --name less
	$(PY) bench/run.py --less --policies pool --model gat --name less-gat

bench-spmm: $(BUILD_STAMP) ## the sparse product against DGL's and torch's
	$(PY) bench/spmm.py

bench-attention: $(BUILD_STAMP) ## fused attention, forward and backward, against DGL's chain of operations
	$(PY) bench/attention.py

bench-wire: $(BUILD_STAMP) ## the transports against gloo
	$(PY) bench/wire.py

bench-all-reduce: $(BUILD_STAMP) ## all-reduce of torch.distributed with the backend sar against gloo
	$(PY) bench/all_reduce.py

MANY ?=
bench-many: ## workers without Python on this machine, 8 to 128 of them: start, barrier, all-reduce, rounds, descriptors, threads, memory; MANY="--workers 128"
	@mkdir -p build/bench
	$(GO) build -o build/bench/many ./bench/many
	build/bench/many $(MANY)

HOSTS ?=
bench-hosts: $(BUILD_STAMP) ## rows that would cross the network once for a host in place of once for each of its workers; HOSTS="--parts 16"
	$(PY) bench/host_rows.py $(HOSTS)

bench-overlap: $(BUILD_STAMP) $(BENCH_STAMP) ## how much of the transfer is hidden over shaped links, sar.memoize, Config.exchange; needs root
	$(PY) bench/overlap.py
	$(PY) bench/epoch_options.py
	$(PY) bench/epoch_options.py --model gat
	$(PY) bench/epoch_options.py --model sums --hidden 256 --graph cornell5
	$(PY) bench/epoch_options.py --model sums --hidden 256 --graph rmat

docs-layers: $(BUILD_STAMP) ## docs/layers.md, layers-pyg.md, transforms.md: which layers of dgl.nn (and their memory beside DGL's) and of PyG run
	$(PY) -m tests.parity.layers_table
	$(PY) -m tests.parity.pyg_table
	$(PY) -m tests.parity.transforms_table

bench-files: $(BUILD_STAMP) ## what checksums of partitions cost when they are loaded, and SAR's partition format against DGL's
	$(PY) bench/files.py
	$(PY) bench/partition_formats.py

CHECKPOINT ?=
bench-checkpoint: $(BUILD_STAMP) ## what a checkpoint in the background adds to an epoch of some 10 s; CHECKPOINT="--layers 20 --scratch DIR"
	$(PY) bench/checkpoint.py $(CHECKPOINT)

MAPPED ?=
bench-mapped: $(BUILD_STAMP) ## features on disk, three times a memory limit: losses, time, memory; needs root; MAPPED="--model gat"
	$(PY) bench/mapped.py $(MAPPED)

LARGE ?=
bench-large: $(BUILD_STAMP) ## 4 M nodes, 100 M edges, 4 workers: partition, construct, train; LARGE="--train random,metis --scratch DIR"
	$(PY) bench/large.py $(LARGE)

PAPER ?= check
bench-paper: $(BUILD_STAMP) ## one worker of the paper's graph, its peers replayed; without PAPER a small check of that; PAPER="run --parts 64 --models sage", PAPER="--way efficient run --parts 64 --models gat128"
	$(PY) bench/paper.py $(PAPER)

CUT ?=
bench-partition: $(BUILD_STAMP) ## sar partition of 4 M nodes, 100 M edges into 16 parts, by method: time, memory, cut; CUT="--methods fennel"
	$(PY) bench/partition.py $(CUT)

PARTITIONERS ?=
bench-partitioners: $(BUILD_STAMP) ## rows that travel, and rows or partial sums, by method and objective; PARTITIONERS="--graphs cornell5 --parts 8"
	$(PY) bench/partitioners.py $(PARTITIONERS)

INGEST ?=
bench-ingest: $(BUILD_STAMP) ## sar ingest of 50 M pairs in 1 GiB, ids as integers and as text: time, memory; INGEST="--ids text --scratch DIR"
	$(PY) bench/ingest.py $(INGEST)

BILLION ?= --scratch build/billion
bench-billion: $(BUILD_STAMP) ## from tables of a billion edges to predictions, step by step: time, memory, disk (30 GiB); BILLION="--scratch DIR --until ingest"
	$(PY) bench/billion.py $(BILLION)

GROWTH ?=
bench-growth: $(BUILD_STAMP) ## time and memory against the number of edges, 1 to 30 M; GROWTH="--big --scratch DIR": 100 M too
	$(PY) bench/growth.py $(GROWTH)

bench-sampling: $(BUILD_STAMP) ## sampled batches against DGL's loader
	$(PY) bench/sampling.py

wheel: $(VENV_STAMP) ## dist/sar_gnn-*.whl, for this processor and glibc; installs without Go and gcc
	rm -rf build/lib.* build/bdist.* dist/sar_gnn-*.whl
	$(PIP_WHEEL) --wheel-dir dist .
	@ls dist/sar_gnn-*.whl

PIP_WHEEL := $(PY) -m pip wheel --disable-pip-version-check --quiet --no-build-isolation --no-deps

WHEELS_STAMP := $(VENV)/.requirements-wheels
$(WHEELS_STAMP): requirements-wheels.txt requirements-wheels.lock $(VENV_STAMP)
	$(call install,wheels)
	@touch $@

WHEEL_ARCHS ?= x86_64 aarch64
wheels: $(WHEELS_STAMP) ## dist/release/sar_gnn-*.whl, to publish: for glibc 2.28 and newer, of WHEEL_ARCHS (x86_64 aarch64)
	rm -rf dist/release
	for arch in $(WHEEL_ARCHS); do \
	  rm -rf build/lib.* build/bdist.*; \
	  SAR_WHEEL_ARCH=$$arch $(PIP_WHEEL) --wheel-dir dist/release . || exit 1; \
	done
	$(PY) -m tests.wheels audit dist/release

test-wheels: ## installs and runs the wheels of `make wheels` in environments without Go and gcc, for every Python found
	$(PY) -m tests.wheels run dist/release

# Where the library goes. Of another processor it lies in a folder of its own.
LIBSAR ?= build
libsar: $(LIBSAR)/lib/libsar.so $(LIBSAR)/include/sar.h ## build/lib/libsar.so and build/include/sar.h, for C and other languages
$(LIBSAR)/lib/libsar.so: $(GO_SOURCES)
	$(GO) build -buildmode=c-shared -trimpath -buildvcs=false -ldflags='-s -w -extldflags=-Wl,-soname,libsar.so' -o $@ ./capi/libsar
	@rm -f $(@D)/libsar.h # what Go writes; sar.h is the interface
$(LIBSAR)/include/sar.h: capi/sar.h
	@mkdir -p $(@D)
	cp $< $@

C_EXAMPLES := $(patsubst examples/c/%.c,$(LIBSAR)/examples/%,$(wildcard examples/c/*.c))
examples-c: $(C_EXAMPLES) ## compiles the C programs of examples/c against libsar.so and runs them
	@! test -x examples/c/run.sh || examples/c/run.sh $(LIBSAR)/examples
$(LIBSAR)/examples/%: examples/c/%.c examples/c/sockets.h $(LIBSAR)/lib/libsar.so $(LIBSAR)/include/sar.h
	@mkdir -p $(@D)
	$(or $(CC),cc) -std=c11 -O2 -Wall -Wextra -Werror -I$(LIBSAR)/include $< -o $@ -L$(LIBSAR)/lib -lsar -lm -pthread '-Wl,-rpath,$$ORIGIN/../lib'

# qemu's -L names the folder with the C library of that processor: Debian's package libc6-arm64-cross has it.
QEMU ?= qemu-aarch64-static -L /usr/aarch64-linux-gnu
examples-aarch64: $(WHEELS_STAMP) ## the examples in C and in Go for aarch64, compiled by zig, run by QEMU (qemu-aarch64-static -L /usr/aarch64-linux-gnu)
	$(MAKE) examples-c examples-go-emulated LIBSAR=build/aarch64 GOARCH=arm64 CGO_ENABLED=1 RUNNER="$(QEMU)" \
	  CC="$$($(PY) -c 'import ziglang; print(ziglang.__path__[0])')/zig cc -target aarch64-linux-gnu.2.28"

examples-go-emulated:
	$(GO) build -o $(LIBSAR)/examples/train ./examples/go
	examples/go/emulated.sh $(LIBSAR)/examples/train

clean: ## everything that was built; .venv stays
	rm -rf build dist python/*.egg-info python/sar/_ext $(BUILD_STAMP)
	find python tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
