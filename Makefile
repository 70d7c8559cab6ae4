SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The default is the tag or the commit, or devel outside of git.
export VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 30s
ROUNDS ?= 500
ARGS ?=
PKG ?=

# tool builds the named program of the module internal/tools, and is the command that runs it in this folder, with a prefix.
tool = go build -C internal/tools -o ../../bin/tools/ ./$(1) && $(2) bin/tools/$(notdir $(1))

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install the git hook that checks commit subjects
	scripts/commit-msg install

.PHONY: demo
demo: build ## run a worker and a broker for 15 seconds
	bin/reprise demo --once $(ARGS)

.PHONY: build
build: ## build bin/reprise
	go build -trimpath -ldflags '-X github.com/reprisemq/reprise/cmd/reprise/internal/version.version='"$$VERSION" -o bin/reprise ./cmd/reprise

.PHONY: release
release: ## build the files of a release into dist (VERSION=v0.1.0)
	$(call tool,release) -version "$$VERSION" $(ARGS)

.PHONY: release-test
release-test: ## build a release twice, install its packages and run its images (root on Debian)
	scripts/release-test

.PHONY: test
test: ## run all tests, with RabbitMQ and PostgreSQL (ARGS='-run TestX ./broker')
	scripts/test $(ARGS)

.PHONY: test-short
test-short: ## run the fast tests, which need only Go and git
	go test -short $(or $(ARGS),./...)
	$(if $(ARGS),,go test -C examples -short ./...)
	$(if $(ARGS),,go test -C internal/tools -short ./...)

.PHONY: fresh
fresh: ## run the first commands of README.md on a minimal Debian system (root on Debian)
	scripts/fresh

.PHONY: lint
lint: ## check the formatting, the layers of packages and the modules
	scripts/lint

.PHONY: prose
prose: ## check the English of documents and comments (PKG='broker docs/cli.md')
	@scripts/prose $(PKG)

.PHONY: fmt
fmt: ## format all Go files
	find . -name '*.go' -not -path '*/node_modules/*' -print0 | xargs -0 go tool gofumpt -w

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@go test -list '^Fuzz' ./... | \
	awk '/^Fuzz/ { targets[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, targets[i]; n = 0 }' | \
	while read -r package target; do \
		echo "== $$package $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null; \
	done

.PHONY: bench-broker
bench-broker: ## compare the embedded broker with RabbitMQ (without ARGS: list the benchmarks)
	go build -C bench -o ../bin/brokerbench ./cmd/brokerbench
	bin/brokerbench $(ARGS)

.PHONY: story
story: ## find, correct and replay 12,000 of 20,000 failures in a browser, and print clicks and seconds
	go test -C internal/tools ./browsertest -run TestOperatorFixesBulkFailure -count=1 -v -timeout 15m -story.failures 20000

.PHONY: bench-pages
bench-pages: ## measure the console's pages with 1,000,000 failures (ARGS='-sqlite FILE -postgres URL')
	$(call tool,pagebench) $(ARGS)

.PHONY: bench-worker
bench-worker: build ## compare the worker library with handwritten consumers, and kinds of handlers (without ARGS: list the benchmarks)
	go build -C bench -o ../bin/workerbench ./cmd/workerbench
	bin/workerbench $(ARGS)

.PHONY: bench-peers
bench-peers: build ## compare Reprise with other libraries that retry messages: see bench/peers/README.md (ARGS=-h)
	go build -C bench/peers -o ../../bin/peers/ ./...
	bin/peers/peers $(ARGS)

.PHONY: hostile
hostile: build ## run hostile clients, and print the broker's memory and the latency of another client (ARGS='-run tables')
	go build -C bench -o ../bin/hostile ./cmd/hostile
	bin/hostile $(ARGS)

.PHONY: simulate-reverts
simulate-reverts: ## restore old faults, one at a time, and print the faults that LIVES (100) simulated systems find
	$(call tool,reverts,nice -n 10) -lives $(or $(LIVES),100) $(ARGS)

.PHONY: soak-broker
soak-broker: ## kill the broker ROUNDS times (500), simulate power failures, and damage all its files
	go test ./internal/chaos -run TestKilled -count=1 -timeout 0 -v -chaos.rounds $(ROUNDS) $(ARGS)
	go test ./broker/internal/chaos -count=1 -timeout 0 -v -chaos.rounds $(ROUNDS) -chaos.damage $(ARGS)

.PHONY: assets
assets: ## download the third-party scripts of the console and the site
	scripts/assets

.PHONY: site
site: ## build the documentation site (bin/site/index.html)
	$(call tool,site) -out bin/site

.PHONY: screenshots
screenshots: ## take screenshots of the console's pages (bin/screenshots, docs/images)
	$(call tool,browsertest/demo) -pictures bin/screenshots -readme docs/images

.PHONY: soak-replay
soak-replay: ## kill the processes that replay, archive and handle MESSAGES messages (100000)
	go test ./internal/chaos/replay -count=1 -timeout 0 -v -replay.messages $(or $(MESSAGES),100000) $(ARGS)

.PHONY: soak-outbox
soak-outbox: ## kill processes that publish and fill an outbox KILLS times (100), with each database and broker
	go test ./outbox -run TestKilledProcess -count=1 -timeout 0 -v -outbox.kills $(or $(KILLS),100) $(ARGS)

.PHONY: soak-migrate
soak-migrate: ## kill migrations and moves at every EVERY-th frame and request (1), and migrate under a load of MESSAGES messages (200000)
	go test ./internal/migrate -count=1 -timeout 0 -v -migrate.every $(or $(EVERY),1) -migrate.messages $(or $(MESSAGES),200000) $(ARGS)
	go test ./internal/move -count=1 -timeout 0 -v -run TestKilled -move.every $(or $(EVERY),1) $(ARGS)

.PHONY: soak-properties
soak-properties: ## run the property tests with CHECKS cases (1000)
	go test ./internal/archive/store ./broker/internal/queue ./conformance -run 'TestArchiveMatchesModel|TestExportAndImport|TestSearchAcceptsAnyText|TestPagesAreStable|TestAQueueOnDisk|TestDifferential' \
		-count=1 -timeout 0 -rapid.checks $(or $(CHECKS),1000) $(ARGS)

.PHONY: soak-publish
soak-publish: ## publish through random faults with SEEDS seeds (1000)
	go test ./internal/workertest -run TestPublishReportsCorrectResult -count=1 -timeout 0 -publish.seeds $(or $(SEEDS),1000) $(ARGS)

.PHONY: simulate
simulate: ## simulate complete systems with faults for FOR (1h), from SEED (1) on
	nice -n 10 go test ./broker/internal/simulation -run TestLives -count=1 -timeout 0 -v -simulation.for $(or $(FOR),1h) -simulation.seed $(or $(SEED),1) $(ARGS)

.PHONY: clean
clean: ## remove build results (RabbitMQ stays in ~/.cache/reprise)
	rm -rf bin dist {internal/interop/node,internal/tools/browsertest/axe,bench/peers/node}/node_modules coverage coverage.*
