# One command per chore; CI calls the same ones.
PY := .venv/bin/python

.PHONY: help setup rival demo test lint bench fuzz lock clean
help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: ## what everything else needs; done once
	@build/setup

rival: setup ## MirrorMaker 2 for comparisons, into jars/rival; nothing else needs it
	@build/setup rival

demo: setup ## the main job: two brokers, real records, kills, verified (SEED=, KILLS=)
	@$(PY) -m reo demo $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS))

test: setup ## all tests, on real brokers (ARGS= for pytest)
	@$(PY) -m pytest $(ARGS)

lint: setup ## style and types
	@$(PY) -m ruff check .
	@$(PY) -m mypy

bench: setup ## first figures, printed (RECORDS=)
	@$(PY) -m bench $(if $(RECORDS),--records $(RECORDS))

fuzz: setup ## bad input, searched for by atheris (SECONDS= for each target, TARGET=)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-fuzz.lock
	@$(PY) -m fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET))

lock: ## renew the lock files from pyproject.toml (needs uv)
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 --extra dev \
		$(foreach p,pandas numpy tzdata python-dateutil six,--no-emit-package $(p)) pyproject.toml -o requirements-dev.lock
	uv pip compile -q --generate-hashes --no-annotate --no-header --no-emit-index-url --python-version 3.11 --group fuzz -o requirements-fuzz.lock

clean: ## everything that setup made
	rm -rf .venv jars build/.ivy build/.java-* build/.ivy.log build/.fuzz
