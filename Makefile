# The few verbs of this project. `make ova` and `make test` are all a newcomer needs.

# Build caches live in the user's cache directory, so that a second clone on
# the same machine is warm.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kaas
export CARGO_TARGET_DIR ?= $(CACHE)/target

# Cargo takes a source file that is older than the last build for unchanged. So
# the clone that used the cache last is noted, and another one looks anew at its own.
CLONE := $(CARGO_TARGET_DIR)/last-clone

# Making a root tree and running system containers and VMs takes root.
ifeq ($(shell id -u),0)
ROOT :=
else
ROOT := sudo --preserve-env=HOME,PATH,XDG_CACHE_HOME,CARGO_TARGET_DIR,GOPROXY,GOSUMDB,GOFLAGS
endif

KAAS := $(CARGO_TARGET_DIR)/debug/kaas
SPEC := image/specs/control-plane.toml
# What upgrades are tried from; tests/src/earlier_ova.rs asks for the same.
EARLIER := --version 0.0.9 --kubernetes kubernetes-1-36-2 --kubernetes kubernetes-1-35 --output build/earlier

.PHONY: help readme ova ova-earlier test test-fast test-long lint lab lab-down bench deny setup

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

ova: setup ## Install what is missing on the build host and build the OVAs into build/
	cargo build --locked -p kaas
	$(ROOT) $(KAAS) image build $(SPEC) --output build

ova-earlier: ova ## Build the OVA of an earlier version that scenarios upgrade from into build/earlier/
	$(ROOT) $(KAAS) image build $(SPEC) $(EARLIER)

# How many scenarios there are of each length: another number is a mistake, and fails.
SHORT := 7
LONG := 28
LAB_TEST := cargo test --locked -p scenarios --test lab --

test: ova-earlier lint test-fast ## Build what is needed and pass the tests that must never break
	$(ROOT) env KAAS_OVA="$(CURDIR)/build" KAAS_SCENARIOS=$(SHORT) $(LAB_TEST) ::short:: --test-threads=2

test-fast: setup ## Pass the tests that need neither an image nor a VM
	$(ROOT) env PATH="$(PATH)" cargo test --locked --no-fail-fast --workspace --exclude scenarios
	cargo test --locked -p scenarios --lib

test-long: ova-earlier ## Pass the long scenarios as well
	$(ROOT) env KAAS_OVA="$(CURDIR)/build" KAAS_SCENARIOS=$(LONG) $(LAB_TEST) ::long::

lint: setup ## Check format and lints
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets

lab: ova ## Start a three-node control cluster on this machine
	$(ROOT) $(KAAS) lab up --ova build --nodes 3

lab-down: ## End it
	$(ROOT) $(KAAS) lab down

bench: ova ## Measure speed and memory as ratios against other tools in the same run
	cargo build --locked -p scenarios --bin bench
	$(ROOT) env KAAS_OVA="$(CURDIR)/build" $(CARGO_TARGET_DIR)/debug/bench

deny: ## Check licences, sources and advisories of the dependencies (needs cargo-deny)
	cargo deny check

setup:
	@$(ROOT) .ci/setup
	@mkdir -p $(CARGO_TARGET_DIR)
	@test "$$(cat $(CLONE) 2>/dev/null)" = "$(CURDIR)" || find . -name '*.rs' -exec touch {} +
	@echo "$(CURDIR)" >$(CLONE)

readme: ## Renew the generated parts of the README
	cargo run --locked -p kaas -- image reference --write README.md
