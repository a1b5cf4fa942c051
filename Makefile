# One command per chore; CI calls the same ones.
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes
PICTURES := $(PY) -c 'import matplotlib' 2>/dev/null || $(PIP) -r requirements-report.lock
# $(call option,NAME,name): --name with the value of NAME=, if it has one
option = $(if $($1),--$2 '$($1)')

.PHONY: help setup python rival brokers broker-versions registry postgresql prometheus helm chart \
	release demo test test-long lint format reference bench simulate faults soak report fuzz classes lock clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 17

setup: ## what everything else needs; done once
	@build/setup

python: ## the virtual environment alone: enough for style, types and tests/unit
	@build/setup python

rival: setup ## MirrorMaker 2 for comparisons, into jars/rival; nothing else needs it
	@build/setup rival

broker-versions: setup ## brokers of Kafka 3.9 and 4.4 for the tests, into jars/older and jars/newer
	@build/setup older
	@build/setup newer

registry: setup ## a schema registry for the tests, into jars/registry
	@build/setup registry

postgresql: ## a PostgreSQL server for the tests, from the distribution's package
	@build/setup postgresql

prometheus: ## Prometheus for the tests of the alerts, from the distribution's package
	@build/setup prometheus

# $(call go_install,NAME AND VERSION,MODULE@VERSION,LINKER FLAGS), into build/.bin
define go_install
@command -v go >/dev/null || { \
	echo '$1 is built from the Go module proxy: install Go 1.26 or later' >&2; exit 1; }
@echo 'building $1, which takes some minutes the first time' >&2
@GOBIN=$(CURDIR)/build/.bin CGO_ENABLED=0 go install -trimpath -ldflags '-s -w $3' $2
endef

# The version of Kubernetes that it takes a chart to be for where there is no cluster to ask.
HELM := v3.22.0
HELM_FLAGS := -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37
helm: build/.bin/helm-$(HELM) ## helm for the chart and its tests, into build/.bin; it needs Go
build/.bin/helm-$(HELM):
	$(call go_install,helm $(HELM),helm.sh/helm/v3/cmd/helm@$(HELM),$(HELM_FLAGS))
	@touch $@

SYFT := v1.57.0
build/.bin/syft-$(SYFT):
	$(call go_install,syft $(SYFT),github.com/anchore/syft/cmd/syft@$(SYFT))
	@mv build/.bin/syft $@

release: setup helm build/.bin/syft-$(SYFT) ## package, chart, image, SBOM, in dist/ (PUBLISH=yes, REGISTRY=)
	@PUBLISH='$(PUBLISH)' REGISTRY='$(REGISTRY)' build/release build/.bin/syft-$(SYFT)

chart: helm ## the Helm chart as one file, in dist/
	@build/chart deploy/helm/reo

demo: setup ## the main job: two brokers, real records, kills, verified (SEED=, KILLS=)
	@$(PY) -m tools.demo $(call option,SEED,seed) $(call option,KILLS,kills)

brokers: setup ## two brokers to copy a topic of your own between, until Ctrl-C (PORTS=)
	@$(PY) -m tools.demo.brokers $(PORTS)

# As many at a time as tests/conftest.py says: six on two processors, because most of the time tests
# wait. A file's tests in one process, because they share brokers; the longest files first.
# The order of a set of strings depends on the hash seed, and a simulated schedule on that: with 0
# the schedules are those of `make simulate`.
PYTEST := PYTHONHASHSEED=0 $(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder

# What of ARGS needs brokers, Java and PostgreSQL; without a path, everything is tested.
SERVED = $(filter-out tests/unit% tests/simulation%,$(or $(filter tests%,$(ARGS)),tests))

test: $(if $(SERVED),broker-versions postgresql,python) ## what is promised: 15 minutes, sets up what it needs (ARGS=tests/unit)
	@$(PYTEST) -m 'not long' $(ARGS)

test-long: broker-versions registry postgresql prometheus ## with other values, versions; the chart after `make helm`
	@REO_TEST_EXAMPLES=all $(PYTEST) -m 'long or examples' $(ARGS)

lint: python ## style and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy

format: python ## ruff format, and what ruff can repair
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format --quiet .

reference: setup ## what of docs/ is made from the code
	@$(PY) -m tools.reference

bench: rival ## reo and MirrorMaker 2, and docs/performance.md (ROUNDS=, SCALE=, ONLY=, OUT=)
	@$(PY) -m tools.bench $(call option,ROUNDS,rounds) $(call option,SCALE,scale) $(call option,ONLY,only) \
		--out $(or $(OUT),bench-results.jsonl)
	@$(PICTURES)
	@$(PY) -m tools.bench.report $(or $(OUT),bench-results.jsonl)
	@$(PY) -m tools.reference

simulate: setup ## the service on a simulated Kafka (SEED=, RUNS=, SHRINK=1, PLANTED=, OUT=)
	@$(PY) -m tools.simulator $(call option,SEED,seed) $(call option,RUNS,runs) $(if $(SHRINK),--shrink) \
		$(call option,PLANTED,planted) $(call option,OUT,out)

faults: setup ## faults on real brokers (SEED=, RUNS=, ONLY=, OUT=; REPLAY=1: SEED is a run's own)
	@$(PY) -m tools.faults $(call option,SEED,seed) $(call option,RUNS,runs) $(call option,ONLY,only) \
		$(call option,OUT,out) $(if $(REPLAY),--replay)

soak: setup ## is memory flat in a long run with rare faults? (MINUTES=, SEED=, OUT=)
	@$(PY) -m tools.faults.soak $(call option,MINUTES,minutes) $(call option,SEED,seed) \
		$(call option,OUT,out)

report: setup ## docs/faults.md and its results (RESULTS=, SIMULATED=, PLANTED=, SOAK=, NOTE=)
	@$(PY) -m tools.faults.report $(call option,RESULTS,run) $(call option,SIMULATED,simulated) \
		$(call option,PLANTED,planted) $(call option,SOAK,soak) $(call option,NOTE,note)

fuzz: setup ## bad input, searched for by atheris (SECONDS= for each target, TARGET=)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PIP) --no-deps -r requirements-fuzz.lock
	@$(PY) -m tools.fuzz $(call option,SECONDS,seconds) $(call option,TARGET,target)

classes: setup ## renew replicator/spark/classes.gz, after Spark was renewed
	@SPARK_SUBMIT_OPTS=-XX:DumpLoadedClassList=$(CURDIR)/build/.classes $(PY) -m tools.demo --kills 0
	@grep -v -e '^#' -e source: build/.classes | gzip -9n >replicator/spark/classes.gz

# what packages ask for, and nothing here uses
UNUSED := $(foreach p,pandas numpy tzdata,--no-emit-package $(p))
COMPILE := uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url \
	--python-version 3.11
lock: ## renew the lock files from pyproject.toml (needs uv)
	$(COMPILE) --extra postgresql pyproject.toml -o requirements.lock
	$(COMPILE) --extra postgresql --extra msk -c requirements.lock pyproject.toml -o requirements-msk.lock
	$(COMPILE) --extra postgresql --extra dev --extra msk $(UNUSED) pyproject.toml \
		-o requirements-dev.lock
	$(COMPILE) --group fuzz -o requirements-fuzz.lock
	$(COMPILE) --group release -o requirements-release.lock
	$(COMPILE) --group report -o requirements-report.lock

clean: ## everything that setup made
	rm -rf .venv jars build/.ivy build/.java-* build/.ivy.log build/.fuzz
