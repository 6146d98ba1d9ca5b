# Everything is plain go; the targets only gather it. `make` lists them.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build test test-long fuzz bench bench-all demo lint clean

export CGO_ENABLED := 0

GO       ?= go
FUZZTIME ?= 3s
TIMEOUT  ?= 5m

# What has one owner thread, and so must show that it has, and what others reach
# it through. Slow under the detector, so with a quarter of the histories.
RACE := ./bql/... ./qdisc/... ./dequeue/... ./shaper/worker/... ./shaper ./shaper/control
RACE_CHECKS ?= 25

# Directories with integration tests, and directory:target for each fuzz target.
# Looked up when used, so new ones join by themselves.
INTEGRATION = $(shell grep -rlE --include='*_test.go' '^func TestIntegration' . | xargs -r -n1 dirname | sort -u)
FUZZ        = $(shell grep -roE --include='*_test.go' '^func Fuzz\w+' . | sed -E 's,/[^/]*:func ,:,' | sort)

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## build the service and the command into bin/
	$(GO) build -trimpath -o bin/ ./cmd/...

# Every stage runs, whatever became of the one before; count has the last word,
# and the exit code is bad if any stage's or count's was.
test: ## all tests, race detector on the engine, short fuzz: at most ten minutes
	@$(GO) build -o bin/count ./tests/count
	@{ bad=0; \
	  $(GO) vet ./... 2>&1 || echo '{"Action":"fail","Package":"go vet"}'; \
	  $(GO) test -json -vet=off -timeout $(TIMEOUT) -skip '^TestIntegration' ./... || bad=1; \
	  echo '--- in network namespaces, one package at a time'; \
	  $(foreach dir,$(INTEGRATION),$(GO) test -json -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestIntegration' $(dir) || bad=1;) \
	  echo '--- with the race detector'; \
	  RAPID_CHECKS=$(RACE_CHECKS) CGO_ENABLED=1 $(GO) test -json -vet=off -short -race -timeout $(TIMEOUT) -skip '^TestIntegration' $(RACE) || bad=1; \
	  echo '--- fuzz, $(FUZZTIME) each'; \
	  $(foreach f,$(FUZZ),$(call fuzz,$(f),-json) || bad=1;) \
	  exit $$bad; \
	} | bin/count

# $(call fuzz,DIRECTORY:TARGET,FLAGS)
fuzz = $(GO) test $(2) -vet=off -run '^$$' -fuzz '^$(lastword $(subst :, ,$(1)))$$' -fuzztime $(FUZZTIME) $(firstword $(subst :, ,$(1)))

test-long: ## the same with many more random histories, longer loads, a minute of fuzz each, and a build for other systems
	GOOS=darwin $(GO) build ./...
	SLUICE_LONG=1 RAPID_CHECKS=3000 $(MAKE) test RACE_CHECKS=300 FUZZTIME=1m TIMEOUT=60m

fuzz: FUZZTIME := 1m
fuzz: ## a minute of every fuzz target
	@$(foreach f,$(FUZZ),echo '$(f)'; $(call fuzz,$(f));)

bench: ## what a packet costs: the engine on memory ports, each discipline; writes bench.json
	$(GO) test -run '^$$' -bench 'Engine/pfifo_fast|Bare' ./shaper/worker
	$(GO) run ./tests/bench -o bench.json

bench-all: ## every benchmark with its allocations; BENCH=regexp picks some
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem ./...

demo: build ## plain FIFO against the shaped policy in namespaces of its own (as root), or in memory
	$(GO) build -trimpath -o bin/demo ./tests/lab/demo
	bin/demo

lint: ## go vet, staticcheck, and a build for other systems
	$(GO) vet ./...
	$(GO) tool -modfile=tests/tools/go.mod staticcheck ./...
	GOOS=darwin $(GO) build ./...

clean: ## remove bin/
	rm -rf bin
