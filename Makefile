# One command per chore; CI calls the same ones.
PY := .venv/bin/python
PICTURES := $(PY) -c 'import matplotlib' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-report.lock

.PHONY: help setup rival older postgresql helm chart release demo test test-long lint format reference bench simulate faults soak report dashboard fuzz classes lock clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## what everything else needs; done once
	@build/setup

rival: setup ## MirrorMaker 2 for comparisons, into jars/rival; nothing else needs it
	@build/setup rival

older: setup ## a broker of Kafka 3.9 for the tests, into jars/older
	@build/setup older

postgresql: ## a PostgreSQL server for the tests, from the distribution's package
	@build/setup postgresql

HELM := v3.22.0
helm: build/.bin/helm-$(HELM) ## helm for the chart and its tests, into build/.bin; it needs Go
build/.bin/helm-$(HELM):
	@command -v go >/dev/null || { echo 'helm is built from the Go module proxy, and there is no go: install Go 1.26 or later' >&2; exit 1; }
	@echo 'building helm $(HELM), which takes some minutes the first time' >&2
	@GOBIN=$(CURDIR)/build/.bin CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' helm.sh/helm/v3/cmd/helm@$(HELM)
	@touch $@

SYFT := v1.57.0
build/.bin/syft-$(SYFT):
	@command -v go >/dev/null || { echo 'syft is built from the Go module proxy, and there is no go: install Go 1.26 or later' >&2; exit 1; }
	@echo 'building syft $(SYFT), which takes some minutes the first time' >&2
	@GOBIN=$(CURDIR)/build/.bin CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' github.com/anchore/syft/cmd/syft@$(SYFT)
	@mv build/.bin/syft $@

release: setup helm build/.bin/syft-$(SYFT) ## wheel, chart, image and the list of what it is made of, all of one version, in dist/
	@build/release build/.bin/syft-$(SYFT)

chart: helm ## the Helm chart as one file, in dist/
	@build/chart deploy/helm/reo

demo: setup ## the main job: two brokers, real records, kills, verified (SEED=, KILLS=)
	@$(PY) -m demo $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS))

# As many at a time as tests/conftest.py says: six on two processors, because most of the time tests
# wait. A file's tests in one process, because they share brokers; the longest files first.
# The order of a set of strings depends on the hash seed, and a simulated schedule on that: with 0
# the schedules are those of `make simulate`.
PYTEST := PYTHONHASHSEED=0 $(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder

test: older postgresql ## what is promised, on real brokers, six files at a time (ARGS= for pytest: ARGS=tests/unit needs no broker)
	@$(PYTEST) -m 'not long' $(ARGS)

test-long: older postgresql ## what repeats a proof of `make test` with other values or on another version; the Helm chart after `make helm` (ARGS= for pytest)
	@REO_TEST_EXAMPLES=all $(PYTEST) -m 'long or examples' $(ARGS)

lint: setup ## style and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy

format: setup ## ruff format, and what ruff can repair
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format --quiet .

reference: setup ## docs/ made from the code: after a change of a setting, error, metric, command, permission or format
	@$(PY) -m reference

bench: rival ## reo and MirrorMaker 2 in turn, and docs/performance.md of it (ROUNDS=, SCALE=, ONLY=, OUT=)
	@$(PY) -m bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SCALE),--scale $(SCALE)) $(if $(ONLY),--only '$(ONLY)') --out $(or $(OUT),bench-results.jsonl)
	@$(PICTURES)
	@$(PY) -m bench.report $(or $(OUT),bench-results.jsonl)
	@$(PY) -m bench.targets $(or $(OUT),bench-results.jsonl)
	@$(PY) -m reference

simulate: setup ## the service's own processes on a virtual clock, against a simulated Kafka (SEED=, RUNS=, SHRINK=1, PLANTED=, OUT=)
	@$(PY) -m simulator $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(SHRINK),--shrink) $(if $(PLANTED),--planted '$(PLANTED)') $(if $(OUT),--out $(OUT))

faults: setup ## real faults on real brokers (SEED=, RUNS=, ONLY=, OUT=; REPLAY=1 takes SEED as a run's own)
	@$(PY) -m faults $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only '$(ONLY)') $(if $(OUT),--out $(OUT)) $(if $(REPLAY),--replay)

soak: setup ## a long run with rare faults: are memory, descriptors and threads flat? (MINUTES=, SEED=, OUT=)
	@$(PY) -m faults.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

report: setup ## docs/faults.md from RESULTS=, RIVALS=, SOAK=, SIMULATED=, PLANTED=; the other sections stay
	@$(PICTURES)
	@$(PY) -m faults.report $(RESULTS) $(if $(RIVALS),--rivals $(RIVALS)) $(if $(SOAK),--soak $(SOAK)) $(if $(SIMULATED),--simulated $(SIMULATED)) $(if $(PLANTED),--planted $(PLANTED)) $(if $(HOW),--how '$(HOW)')

dashboard: setup ## docs/dashboard.png: the dashboard while a copy is harmed (GRAFANA= where it is installed; prometheus and chromium are Debian's packages)
	@$(PY) -m faults.dashboard $(or $(GRAFANA),/usr/share/grafana)

fuzz: setup ## bad input, searched for by atheris (SECONDS= for each target, TARGET=)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-fuzz.lock
	@$(PY) -m fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET))

classes: setup ## renew replicator/spark/classes.gz, after Spark was renewed
	@SPARK_SUBMIT_OPTS=-XX:DumpLoadedClassList=$(CURDIR)/build/.classes $(PY) -m demo --kills 0
	@grep -v -e '^#' -e source: build/.classes | gzip -9n >replicator/spark/classes.gz

lock: ## renew the lock files from pyproject.toml (needs uv)
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 --extra dev \
		$(foreach p,pandas numpy tzdata python-dateutil six,--no-emit-package $(p)) pyproject.toml -o requirements-dev.lock
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 --group fuzz -o requirements-fuzz.lock
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 --group report -o requirements-report.lock

clean: ## everything that setup made
	rm -rf .venv jars build/.ivy build/.java-* build/.ivy.log build/.fuzz
