# Everything a contributor or a machine runs. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help setup preflight build build-for-tests demo test simulate test-rdma test-kernels conformance hw-test hw-bench hw-bench-quick lint fmt bench-setup bench bench-quick fuzz deny advisories miri coverage bench-gate soak packages test-packages nightly clean

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
FARMEM := $(TARGET)/release/farmem
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 60

# What `farmem --version` and results of benchmarks name. Without a repository it may be given; else nothing is named.
ifndef FARMEM_COMMIT
FARMEM_COMMIT := $(shell commit=$$(git rev-parse --short=12 HEAD 2>/dev/null) && echo "$$commit$$(git diff --quiet HEAD || echo +)")
endif
export FARMEM_COMMIT

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 17

setup: ## install what is missing for building and testing
	@scripts/setup

build: ## farmem and farmem-bench, as they are released
	@scripts/setup --demo
	$(CARGO) build --release --locked -p farmem

# Both builds lie in the same place, and a goal is made once: what needs one of the two makes it at its beginning.
build-for-tests: ## the same, but failures can be ordered by variables: for tests, and for nothing else
	@scripts/setup --demo
	$(CARGO) build --release --locked -p farmem --features injection

preflight:
	@scripts/preflight

demo: preflight build ## a real program whose data is four times its local memory, compared with the kernel's own swap
	@scripts/demo

test: setup ## everything that must hold, within fifteen minutes on two cores
	@$(MAKE) --no-print-directory build-for-tests
	$(CARGO) fmt --all --check
	$(CARGO) nextest run --locked --workspace $(if $(CI),--profile ci)
	@hw/scripts/test units proofs

simulate: ## SEEDS=n runs of the simulated pager (10,000 unless said otherwise), or SEED=n: one, again
	@FARMEM_SIMULATE_SEEDS=$(SEEDS) FARMEM_SIMULATE_SEED=$(SEED) $(CARGO) test --release --locked -p farmem-sim --test seeds -- $(if $(SEED),one_seed,no_seed)

test-rdma: setup ## memory nodes by RDMA, in guests of an emulator with a device in software: some minutes
	@$(MAKE) --no-print-directory build-for-tests
	@scripts/test-rdma

test-kernels: setup build ## several kernels of Debian and their settings, in guests of an emulator: an hour; needs the network
	@scripts/test-kernels

hw-test: setup ## all checks of the accelerator in hw/; `make test` has its units and proofs
	@hw/scripts/test

conformance: setup build ## other people's test suites (CRIU's programs, CPython, Redis), natively and under Farmem: an hour; needs root
	@scripts/conformance

packages: ## packages for Debian, Fedora and others, an image for containers, and a list of what they are made of, in target/packages
	@$(MAKE) --no-print-directory build
	@scripts/setup --packages
	@scripts/package

test-packages: packages ## installs each package into a root of its own, runs it there, and removes it; needs root
	@scripts/test-packages

nightly: setup build hw-test conformance test-packages soak test-rdma deny miri fuzz coverage ## the same programs with data of a real size, other people's test suites, packages, a million simulated runs, dependencies, Miri, fuzz targets, covered lines, an hour of soak, and all of hw/
	$(MAKE) simulate SEEDS=1000000
	@$(MAKE) --no-print-directory build-for-tests
	FARMEM_TEST_SCALE=large $(CARGO) nextest run --locked --profile nightly -p farmem-tests

lint: setup ## formatting, clippy, scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@git grep -lE '^#!(.*bash|/bin/sh)$$' | xargs shellcheck -x -P SCRIPTDIR

deny: setup ## licences, second versions and sources of dependencies, by deny.toml
	@scripts/deny

advisories: setup ## the same, and known vulnerabilities of dependencies, whose database is fetched
	@scripts/deny advisories

fmt: ## format everything
	$(CARGO) fmt --all

bench-setup: setup build ## install the programs that benchmarks run, and say of each which it is
	@scripts/setup --check && scripts/setup --programs

bench: bench-setup ## everything, for hours, with a report in target/bench: kernel swap needs root; goes on after a stop
	$(FARMEM) bench all --out $(TARGET)/bench --python .deps/venv/bin/python

bench-quick: build ## access patterns compared with the kernel's own swap, within ten minutes: the README's table, and a report in target/bench-quick
	$(FARMEM) bench all --quick --repeat 3 --only micro,faults --peer native,farmem,zram-lz4 --out $(TARGET)/bench-quick
	@$(FARMEM) bench table $(TARGET)/bench-quick

bench-gate: setup build ## BASE=commit: whether access patterns have become slower, or take more memory, since that commit
	@scripts/bench-gate '$(BASE)'

hw-bench: setup ## the accelerator compared with software paging, cycle by cycle, bare and under Linux: figures in target/hw/bench; goes on after a stop
	@hw/scripts/bench

hw-bench-quick: setup ## the same with the shortest runs
	@hw/scripts/bench quick

miri: setup ## tests of page and wire, and some of codec, in an interpreter that finds undefined behaviour: some minutes
	@scripts/miri

coverage: setup ## which part of each crate's lines its tests run, against the floors in scripts/coverage-floors
	@scripts/setup --nightly
	@scripts/coverage

fuzz: setup ## each fuzz target for FUZZ_SECONDS (60)
	@scripts/fuzz $(FUZZ_SECONDS)

soak: build ## programs come and go and nodes die for SOAK_MINUTES (60), and every byte is checked; needs root
	@scripts/soak $(SOAK_MINUTES)

clean: ## remove what was built; the packages that `make setup` installed stay
	$(CARGO) clean
