# make demo   builds rein and shows its main job in a sandbox: no key, no Docker
# make test   everything a change must pass, with what it needs installed first
# The rest:   build lint fmt readme example bench bench-peers stress fuzz
#             evidence context property lab egress-abuse test-clients test-vault test-agents test-opensandbox verify clean

GO      ?= go
BINS    := bin/rein bin/rein-keep bin/rein-execd bin/rein-runsc
GOBUILD := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w'

# make imports LANG from the environment, where it is a locale (en_US.UTF-8).
# Only the three names of demo projects are meant for us.
DEMO := $(or $(filter sh go python,$(LANG)),sh)
ifeq ($(origin LANG),command line)
unexport LANG
ifeq ($(filter sh go python,$(LANG)),)
$(error LANG=$(LANG): the demo projects are sh, go and python)
endif
endif

.PHONY: build test lint fmt readme demo example bench bench-peers stress fuzz evidence context property lab egress-abuse test-clients test-vault test-agents test-opensandbox verify clean FORCE
.DEFAULT_GOAL := build

build: $(BINS)

# Always asked, because only go knows whether a binary is up to date; it then
# answers within a second or two, also for gVisor.
bin/%: FORCE
	@test -e $@ || test $* != rein-runsc || echo "building gVisor (bin/rein-runsc): a minute or two the first time"
	@$(GOBUILD) -o $@ ./cmd/$*

test: build
	@scripts/test.sh

lint:
	@scripts/lint.sh

fmt:
	@gofmt -l -w $$(git ls-files -co --exclude-standard '*.go')

demo: build
	@scripts/demo.sh $(DEMO)

# What README.md shows of the demo comes from the demo; CI compares it.
readme: build
	@scripts/readme.sh write

# The module in examples/embed is outside this one, as an embedder's would be.
example: build
	@scripts/example.sh

# The benchmarks print a table beside the targets; they assert no times.
bench: build
	@scripts/bench.sh

bench-peers:
	@scripts/bench-peers.sh

stress: build
	@scripts/bench.sh -stress

# Ten thousand connections through a gateway, one after the other and at once.
egress-abuse:
	nice $(GO) test -race ./egress -run 'TestManyConnections|TestParallelConnects|TestHalfOpenEnds' -connections 10000

# Every way out of a sandbox, tried: both runtimes, as root and not.
lab: build
	@scripts/lab.sh

# pip, npm, git, curl, Go, Node and Java behind a policy.
test-clients: build
	@scripts/test-clients.sh

test-vault: build
	@scripts/test-vault.sh

# The command-line agents themselves, from npm, in the cage.
test-agents: build
	@scripts/test-agents.sh

# Against a real OpenSandbox server, which is installed and started for it.
test-opensandbox: build
	@scripts/test-opensandbox.sh

# The conformance suite on every provider, and what it has shown into docs/.
verify: build
	@scripts/verify.sh

# What previews keep of the lines that decide, on the logs of real tools.
evidence:
	@scripts/evidence.sh

# What a model is sent of long work, and whether it was all that it needed.
context: build
	@scripts/context.sh

# Made-up runs, good and hostile, in simulated time.
property:
	@scripts/property.sh

# Every parser of untrusted bytes, a few seconds each.
fuzz:
	@scripts/fuzz.sh

clean:
	rm -rf bin

FORCE:
