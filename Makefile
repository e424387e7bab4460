# The goals of this project. `make ova` and `make test` are enough to start with.

# Build caches are in the user's cache directory, so that a second clone on the same machine is warm. One clone at a
# time uses Cargo's results there.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kaas

# Root trees, system containers, VMs and tests need root. Only built programs run as root, never Cargo: its files in the
# user's directories stay the user's.
AS_ROOT := $(CURDIR)/.ci/as-root
# Always for the whole workspace: for a part of it, Cargo builds some dependencies again, with other features.
TEST := KAAS_TEST_VCENTER="$(CURDIR)/build/vcenter" KAAS_TEST_DESCRIPTORS="$(CURDIR)/build/descriptors" \
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" .ci/cargo test --locked --workspace
# For two crates only, and optimised: for loops over thousands of points.
THOROUGH := $(subst --workspace,--profile thorough -p fleet -p controller,$(TEST))
# Builds a program and copies it into build/ at once: another clone may compile its own when Cargo ends. No package is
# named, so that all programs share their dependencies.
TAKE := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="install -m 755 -t build" .ci/cargo run --locked --bin

KAAS := build/kaas
KAAS_DEV := build/kaas-dev
# Go's compiled components take more space than all other caches. They are removed after the last image, because the
# earlier image shares most of them.
MAKE_ROOM = @$(AS_ROOT) $(KAAS_DEV) image clean --go-cache
# OVAs and command for scenarios. `kaas-dev`, the lab's vCenter and govc are in the command's directory.
LAB := KAAS_OVA="$(CURDIR)/build" KAAS_COMMAND="$(CURDIR)/$(KAAS)"
SPEC := image/specs/control-plane.toml
TENANT := image/specs/tenant.toml

# The space in MiB that a first build needs, most of it for Go's compiler. For all goals of one call, because `setup`
# runs once.
export KAAS_ROOM := $(if $(filter ova ova-earlier earlier install test test-fast test-long scenario lab bench,$(MAKECMDGOALS)),22000,4096)

.PHONY: audit vcenter vcenter-program fuzz scenario named help reference screens words install ova ova-earlier earlier test test-fast test-long lint lab lab-down bench cold deny setup root

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 17

# Both in one call: after the minutes of the first one, sudo would ask for the password again.
ova: setup root ## Install what is missing on the build host and build the OVAs into build/
	$(TAKE) kaas-dev
	$(TAKE) kaas
	$(AS_ROOT) sh -ec '$(foreach spec,$(SPEC) $(TENANT),$(KAAS_DEV) image build $(spec) --to-directory build;)'

install: setup root ## Install the commands kaas and kaas-dev into /usr/local/bin
	$(TAKE) kaas-dev
	$(TAKE) kaas
	$(AS_ROOT) install -m 755 $(KAAS) $(KAAS_DEV) /usr/local/bin

ova-earlier: earlier ova ## Build the OVA of an earlier version that scenarios upgrade from into build/earlier/
	.ci/earlier $(AS_ROOT) $(KAAS_DEV) image build $(SPEC) --to-directory build/earlier
	$(MAKE_ROOM)

# Fetches the sources of the earlier version as the owner of the clone. Fails at once if this is impossible.
earlier: setup
	@.ci/earlier >/dev/null

# The number of scenarios of each length. Another number is a mistake, and fails.
SHORT := 10
LONG := 62

test: ova-earlier lint test-fast ## Build what is needed and pass the tests that must never break
	$(LAB) KAAS_SCENARIOS=$(SHORT) $(TEST) --test lab -- ::short:: --test-threads=2

test-fast: setup root earlier vcenter ## Pass the tests that need neither an image nor a VM
	$(MAKE_ROOM)
	$(TEST) --no-fail-fast

# With the Go version of components: the host's may be too old to know other versions.
IN_GO = cd tests/vcenter && GOFLAGS="-mod=readonly -buildvcs=false" $(AS_ROOT) "$(CURDIR)/$(KAAS_DEV)" image go "$(CURDIR)/$(SPEC)" --

vcenter: setup root ## Build the vCenter for tests, and govc, into build/, and pass all tests in Go
	$(TAKE) kaas-dev
	@$(IN_GO) sh -ec '\
		unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w: $$unformatted" >&2; exit 1; }; \
		go build -trimpath -o ../../build/ . ./govc; go test ./...; \
		ln -sfn "$$(go list -m -f "{{.Dir}}" github.com/vmware/govmomi)/ovf/fixtures" ../../build/descriptors; \
		cd ../../image/components/local-path-helper; test -z "$$(gofmt -l .)"; go test ./...'

vcenter-program: setup root ## Build the vCenter for tests and for `kaas-dev lab vcenter`, and govc, into build/
	$(TAKE) kaas-dev
	@$(IN_GO) go build -trimpath -o ../../build/ . ./govc

# With an error at each call to a vCenter or an API server and at each journal entry, of which `test-fast` draws a part.
# Also with many clusters of many nodes at once, of which `test-fast` has a few.
EACH := KAAS_TEST_VCENTER_EACH=1 KAAS_TEST_CONTROLLER_EACH=1 KAAS_TEST_CONTROLLER_SCALE=200x5 \
	$(THOROUGH) --no-fail-fast --lib -- --nocapture vcenter::tests::each_ \
	tenant_cluster::tests::faults:: tenant_cluster::tests::upgrades::drift:: node_pool::tests::a_lost_answer node_pool::tests::drift:: run::scale::
# The same with a whole upgrade or rollout at each point: one point in seven, others in each run.
SEVENTH := KAAS_TEST_CONTROLLER_EACH=7 $(THOROUGH) --no-fail-fast --lib -- --nocapture tenant_cluster::tests::upgrades:: \
	node_pool::tests::repair::a_lost_answer node_pool::tests::rollout::a_lost_answer node_pool::tests::deaths::

test-long: ova-earlier vcenter-program ## Pass the long scenarios as well, and the whole loop of errors of a vCenter
	@failed=; \
	$(LAB) KAAS_SCENARIOS=$(LONG) $(TEST) --no-fail-fast --test lab -- ::long:: || failed="scenarios "; \
	$(EACH) || failed="$${failed}points "; \
	$(SEVENTH) || failed="$${failed}upgrades"; \
	test -z "$$failed" || { echo "failed: $$failed" >&2; exit 1; }

fuzz: setup root ## Fuzz each parser of foreign input for SECONDS, from a new seed: make fuzz SECONDS=3600
	KAAS_FUZZ_SECONDS=$(or $(SECONDS),600) $(TEST) --lib -- fuzz_

lint: setup root ## Check format, lints, and advisories against pinned data
	.ci/cargo fmt --all --check
	.ci/cargo clippy --locked --workspace --all-targets
	.ci/cargo clippy --locked --workspace --test lab
	$(TAKE) kaas-dev
	$(AS_ROOT) $(KAAS_DEV) image audit --pinned $(SPEC) $(TENANT)

audit: setup root ## Compare what images are made of with published advisories; build them first
	$(TAKE) kaas-dev
	$(AS_ROOT) $(KAAS_DEV) image audit $(SPEC) $(TENANT)

lab: ova ## Start a three-node control cluster on this machine
	$(AS_ROOT) $(KAAS_DEV) lab up --ova build --nodes 3

lab-down: ## End the lab and remove its disks, after a confirmation
	$(AS_ROOT) $(KAAS_DEV) lab down

scenario: named ova-earlier vcenter-program ## Run the scenarios whose names contain NAME
	$(LAB) $(TEST) --test lab -- $(NAME)

# Fails at once, not after both OVAs are built.
named:
	@test -n "$(NAME)" || { echo "give a part of a name: make scenario NAME=three_nodes::" >&2; exit 1; }

# Image swaps on one vCenter, of which `test-fast` has ten, and clusters of many nodes as objects, of which it has a
# few.
SCALE := KAAS_TEST_VCENTER_SCALE=100 KAAS_TEST_CONTROLLER_SCALE=200x50 $(TEST) --lib -- --nocapture vcenter::tests::scale:: run::scale::

bench: ova vcenter ## Measure speed and memory as ratios against other tools in the same run
	$(TAKE) bench
	$(LAB) $(AS_ROOT) build/bench
	$(SCALE)

cold: setup root ## Make in a bare container, all caches empty: make cold SUITE=bookworm MAKE_THERE="setup ova"
	$(TAKE) cold
	$(AS_ROOT) build/cold --suite $(or $(SUITE),trixie) $(if $(LEND_RUST),--lend-rust) $(if $(KEEP),--keep) $(MAKE_THERE)

deny: setup ## Check licences, sources and known weaknesses of the dependencies
	@.ci/deny "$(CACHE)/cargo-deny"

setup: ## Install what is missing on the build host
	@.ci/setup
	@mkdir -p "$(CACHE)" "$(or $(XDG_STATE_HOME),$(HOME)/.local/state)" build

# Fails at once, not after minutes of compiling, if root is not available. sudo may ask for the password.
root:
	@$(AS_ROOT) --check

reference: ## Renew the files that are generated from the code's tables and types: parts of docs/, controller/definitions
	.ci/cargo run --locked --bin kaas-dev -- reference --write docs/reference --schemas docs/reference/schemas
	KAAS_SCHEMAS=write .ci/cargo test --locked -p scenarios --lib -- --exact schemas::endpoint_status_schema_is_current
	.ci/cargo run --locked -p controller -- reference --write docs/reference/objects.md
	.ci/cargo run --locked -p controller -- crds --write controller/definitions

screens: ## Renew pictures of the console and output of commands in docs/, from the programs
	KAAS_SCREENS=write .ci/cargo test --locked --workspace --lib -- --exact faces::console::pictures::committed_pictures_are_current
	KAAS_SCREENS=write .ci/cargo test --locked --workspace --test output -- --exact committed_output_is_current

words: ## Remove from tests/words.lock the files that are clean now
	KAAS_WORDS=write .ci/cargo test --locked --workspace --lib -- --exact words::changed_prose_is_clean
