# What a developer types. The work itself is in scripts/, which CI calls too.

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint bench containers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## workers reserve stock under a lock; needs no server
	cd examples && go run ./inventory

test: ## the full run: every server, vet, race detector, all modules, benchmarks once
	scripts/test

quick: ## the tests that need no server, and by name those that could not run
	scripts/quick

lint: ## golangci-lint, built from the module in tools/
	scripts/lint

bench: ## the benchmarks, each as a ratio to the bare client
	scripts/bench

containers: ## the tests of Redis once more, with the server in a container
	scripts/container-stage
