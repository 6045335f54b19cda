# The commands of the project; `make help` lists them. The Makefile calls scripts/ and CMake's presets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# Where two servers of `make demo` meet.
BACKEND ?= file

# How long `make check-fuzz` gives each fuzzer.
FUZZ_SECONDS ?= 10

# A Python with SGLang, for `make test-engines`, and which of its tests to run; empty: all.
SGLANG_PYTHON ?= python3
TESTS ?=

PROGRAM := build/release/bin/embercache
JOBS := $(shell nproc)
# What the sanitizers build and run.
CHECKED := src/all tests/unit/all tests/conformance/all tests/simulation/all tests/stress/all
# What has threads of its own; but not a Mooncake client in this process: ThreadSanitizer does not know
# that what was written before a request is there when its socket, itself come by one, has it.
THREADED := $(patsubst %,tests/unit/%/all,base bug_reports cache io memory server store store_redis) \
  store_mooncake_test tests/conformance/all tests/simulation/all tests/stress/all
CTEST := ctest --output-on-failure --no-tests=error --parallel $(JOBS)

# Lets a second checkout on the machine use what ccache has of the first.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= true

# clang's sanitizers name functions and lines by this; their own program for it is a whole LLVM.
export ASAN_OPTIONS ?= external_symbolizer_path=/usr/bin/addr2line

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: program ## build and start an encode server with a demo model and a file store
	@model=$$(scripts/demo-model | tail -n 1)
	scripts/demo-media >/dev/null # for the curl line that the server prints
	exec $(PROGRAM) serve --model "$$model" \
	  --enable-mm-global-cache --file-store-dir .embercache/store

.PHONY: wheel
wheel: bootstrap ## build the Python package as a wheel, in build/
	.venv/bin/python -m pip wheel -q . --no-build-isolation --no-deps -w build
	ls build/embercache-*.whl

.PHONY: demo
demo: program ## two servers, one store: photographs encoded once, then served to both (BACKEND=file)
	scripts/demo --backend $(BACKEND)

.PHONY: test
test: release models-and-media ## unit, conformance and integration tests
	$(CTEST) --test-dir build/release --label-regex '^(unit|conformance|integration)$$'

.PHONY: test-mooncake
test-mooncake: release models-and-media ## tests that wait for Mooncake's own time-outs, and by its C library (minutes)
	scripts/mooncake-library
	$(CTEST) --test-dir build/release --label-regex '^mooncake$$'

.PHONY: check
check: check-format check-tree check-asan check-fuzz check-tsan check-soak check-status-page ## all of the checks below

.PHONY: check-format
check-format: bootstrap ## formatting of the C++ files
	git ls-files -z '*.h' '*.cc' | xargs -0 clang-format-19 --dry-run -Werror

.PHONY: check-tree
check-tree: bootstrap ## layers of src/, headers, no skipped tests, no machine's paths
	scripts/check-tree

.PHONY: check-asan
check-asan: bootstrap ## clang's thread-safety analysis, then the tests under AddressSanitizer and UBSan
	cmake --preset asan
	cmake --build --preset asan --target $(CHECKED)
	$(CTEST) --test-dir build/asan --label-regex '^(unit|conformance|stress)$$'

# ThreadSanitizer cannot map its shadow where the kernel randomises addresses widely: setarch -R.
.PHONY: check-tsan
check-tsan: bootstrap ## tests of what has threads under ThreadSanitizer
	cmake --preset tsan
	cmake --build --preset tsan --target $(THREADED)
	fixed=$$(setarch -R true 2>/dev/null && echo setarch -R || true) # some containers forbid it
	$$fixed $(CTEST) --test-dir build/tsan --label-regex '^(unit|conformance|stress)$$'

.PHONY: check-fuzz
check-fuzz: bootstrap ## each fuzzer for FUZZ_SECONDS (10), from the corpora in tests/fuzz
	cmake --preset asan
	cmake --build --preset asan --target tests/fuzz/all
	for fuzzer in build/asan/fuzz/fuzz_*; do
	  found=build/asan/found/$${fuzzer##*/fuzz_}
	  mkdir -p $$found
	  $$fuzzer -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=build/asan/found/ $$found tests/fuzz/corpus/$${fuzzer##*/fuzz_} \
	    >$$found.log 2>&1 || { cat $$found.log; exit 1; }
	  echo "$$fuzzer: $$(sed -n 's/^stat::number_of_executed_units: *//p' $$found.log) inputs"
	done

.PHONY: check-soak
check-soak: program models-and-media ## a minute of mixed load on a server, which then is as it was before
	scripts/soak

.PHONY: check-status-page
check-status-page: program models-and-media ## the status page in headless Chromium
	scripts/bootstrap --browser
	scripts/check-status-page

# Not a part of CI: schemathesis is not installed by scripts/bootstrap.
.PHONY: check-openapi
check-openapi: program models-and-media ## /openapi.json against a server, with schemathesis, which has to be installed
	scripts/check-openapi

# Not a part of CI: SGLANG_PYTHON has to have SGLang and torch (docs/python.md). In a network of their
# own, since Mooncake's ports are open on all of a machine's.
.PHONY: test-engines
test-engines: release-configured ## the Python package in the real SGLang, on a CPU (a quarter of an hour)
	cmake --build --preset release --target python_package
	cd tests/python/engines
	own=$$([[ $$EUID -eq 0 ]] || echo --user --map-root-user)
	PYTHONPATH=$(CURDIR)/build/release/python unshare --net $$own bash -c 'ip link set lo up && exec "$$@"' _ \
	  $(SGLANG_PYTHON) -B -m pytest -q -p no:cacheprovider --confcutdir . $(TESTS)

.PHONY: bench
bench: bootstrap ## measure, and print the figures of docs/performance.md
	cmake --preset release
	cmake --build --preset release
	scripts/bench

.PHONY: format
format: bootstrap ## format the C++ files
	git ls-files -z '*.h' '*.cc' | xargs -0 clang-format-19 -i

.PHONY: bootstrap
bootstrap:
	scripts/bootstrap

.PHONY: models-and-media
models-and-media: bootstrap
	scripts/demo-model
	scripts/demo-model --small
	scripts/demo-media

# The release build without the benchmarks, which `make bench` adds.
.PHONY: release-configured
release-configured: bootstrap
	cmake --preset release -D EMBERCACHE_BUILD_BENCH=OFF

.PHONY: release
release: release-configured
	cmake --build --preset release

.PHONY: program
program: release-configured
	cmake --build --preset release --target bin/embercache
