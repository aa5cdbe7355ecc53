# Builds, checks and demonstrates tine.
#
# Every target works on a fresh Debian 12 machine that has only root, Go, git
# and make: what else a target needs, .ci/setup installs and says so. Nothing
# here needs a C compiler, except the race detector.
#
#   make            the binary, bin/tine
#   make test       all tests, in their short form
#   make demo       the whole product in one story, at most five minutes
#   make prove-NAME the long form of one proof: sim, crash, posix, workloads, scale, ...
#   make prove-fresh demo and test on a new minimal Debian 12, made for the occasion

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO ?= go
BIN ?= bin/tine
BENCH ?= $(GO) run ./bench
BENCH_FLAGS ?=
DEMO_FLAGS ?=
RELEASE_FLAGS ?=

# All packages, and those in which many goroutines work at once.
PKGS ?= ./...
RACE_PKGS ?= ./internal/fs/timeline/... ./internal/fs/stratum/... ./internal/fs/usage/... ./internal/fs/segment/... ./internal/fs/volume/... ./internal/fs/fusefs/... \
  ./internal/fs/cache ./internal/fs/object ./internal/fs/outbox ./internal/fs/depot
RACE_FLAGS ?=

TEST_FLAGS ?=
TEST_TIMEOUT ?= 20m
FUZZ_TIME ?= 5s
PROVE_TIMEOUT ?= 12h
PROVE_FLAGS ?=
SUITES ?= ..
SIM_ROUNDS ?= 500
CRASH_CUTS ?= 100000

# Everything downloaded that is not a Go module is kept here.
export TINE_CACHE ?= $(CURDIR)/.cache
export GO
export CGO_ENABLED ?= 0

.PHONY: build test race fuzz lint demo bench prove-sim prove-fresh prove-suites release clean

# The version is the one that git knows: a tag, or the last tag and the commit.
build:
	.ci/setup
	$(GO) build -trimpath -buildvcs=auto -o $(BIN) ./cmd/tine
	@echo "built $(BIN) $$($(BIN) version | head -n 1)"

test:
	.ci/setup fuse fuse3 sqlite3 node
	.ci/gotest -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(PKGS)

# The race detector is written in C++ and needs cgo to be linked in.
race:
	.ci/setup fuse fuse3 gcc
	CGO_ENABLED=1 .ci/gotest -race -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(RACE_PKGS) $(RACE_FLAGS)

# go test fuzzes one target of one package a run.
fuzz:
	.ci/setup
	@for dir in $$(grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | xargs -r -n 1 dirname | sort -u); do \
	  for target in $$($(GO) test -list '^Fuzz' $$dir | grep '^Fuzz'); do \
	    echo "fuzz $$dir $$target for $(FUZZ_TIME)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) $$dir; \
	  done; \
	done

lint:
	.ci/setup
	@unformatted=$$(gofmt -l */); \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

demo: build
	.ci/setup fuse
	$(GO) build -o bin/demo ./demo
	bin/demo -tine $(BIN) $(DEMO_FLAGS)

bench:
	.ci/setup fuse sqlite3
	$(BENCH) $(BENCH_FLAGS)

prove-sim:
	.ci/setup
	$(GO) test -v -count=1 -timeout $(PROVE_TIMEOUT) ./internal/sim/... -sim.rounds=$(SIM_ROUNDS) $(PROVE_FLAGS)

prove-fresh:
	test/fresh/run

# Power cuts: of the simulated world, then of the real program's recorded writes.
prove-crash:
	.ci/setup fuse
	$(GO) test -v -count=1 -timeout $(PROVE_TIMEOUT) -run 'TestCuts$$' ./internal/sim -sim.cuts=$(CRASH_CUTS)
	$(GO) test -v -count=1 -timeout $(PROVE_TIMEOUT) ./test/crash/... -long $(PROVE_FLAGS)

# Public suites, which are not part of this repository: SUITES is a directory
# with the checkouts pjdfstest and xfstests.
prove-suites: build
	.ci/setup fuse gcc
	@failed=; export TINE=$(abspath $(BIN)); \
	for suite in pjdfstest:pjdfstest fsx:xfstests fsstress:xfstests stress-ng:; do \
	  checkout=$${suite#*:}; \
	  test/suites/run $${suite%%:*} $${checkout:+"$(SUITES)/$$checkout"} || failed+=" $${suite%%:*}"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# A million files and a thousand disks: memory, start, and space and write calls
# under overwriting. Half an hour.
prove-footprint:
	.ci/setup fuse
	$(GO) test -v -count=1 -timeout $(PROVE_TIMEOUT) -run '^(TestFootprint|TestStart|TestOverwrite)$$' ./test/scale -long $(PROVE_FLAGS)

# The long form of the suite in test/NAME. Each suite says with -h what can be
# set: make prove-scale PROVE_FLAGS=-files=100000
prove-%:
	.ci/setup fuse fuse3 sqlite3 node gcc
	$(GO) test -v -count=1 -timeout $(PROVE_TIMEOUT) ./test/$*/... -long $(PROVE_FLAGS)

# What is published, in dist/: the static program in a tar file, a Debian
# package, SHA256SUMS. The same source gives the same bytes.
release:
	$(GO) run ./packaging/release -go $(GO) -out dist $(RELEASE_FLAGS)

clean:
	rm -rf bin dist .cache test/workloads/testdata/npm/node_modules
	$(GO) clean -testcache
