# Every target does its own set-up: a fresh machine needs Python 3.11+, pip and make.
SHELL := /bin/sh
PYTHON ?= python3
# Three for each core and at most 6 more than there are cores: a test process waits most of its time,
# for other processes, leases and answers. And one for each GB of free memory.
JOBS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); \
	memory=$$(awk '/^MemAvailable/ {print int($$2 / 1000000)}' /proc/meminfo 2>/dev/null); \
	printf '%s\n' $$((cores * 3)) $$((cores + 6)) $${memory:-4} | sort -n | awk 'NR == 1 {print ($$1 > 1 ? $$1 : 1)}')
ARGS ?=
BIN := .venv/bin
export PYTHON
# Where an image turns it off, each test process would compile and rewrite every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up test stress celery-suite crash-table container test-fast coverage images first-run check format bench cluster proof docs verify release constraints servers clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[36mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.installed-server: pyproject.toml constraints/all.txt tools/install.sh
	@echo "installing Postroad into .venv, which takes a minute or two"
	@tools/install.sh all
	@touch $@

.venv/.installed-dev: pyproject.toml constraints/all.txt tools/install.sh
	@echo "installing Postroad and its developer tools into .venv"
	@tools/install.sh all,dev
	@touch .venv/.installed-server $@

up: .venv/.installed-server ## run everything with sample partners and the console (DEMO=0: without the partners)
	@$(BIN)/postroad up $(if $(filter 0,$(DEMO)),--no-sample) $(ARGS)

servers: ## install the real servers that tests need, where they are missing
	@tools/servers.sh

test: .venv/.installed-dev servers ## run every test in parallel: on the newest PostgreSQL, and where it matters the oldest too
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Stress tests run alone: their figures depend on the load of the machine.
stress: .venv/.installed-dev servers ## run everything on both PostgreSQL versions, chaos tests and others that grow with their full numbers
	@growing=$$(grep -rlE 'POSTROAD_STRESS|IS_STRESS' tests --include='test_*.py' | grep -v '^tests/chaos/'); \
	POSTROAD_STRESS=1 $(BIN)/python -m pytest -n 1 tests/chaos $$growing $(ARGS); grown=$$?; \
	POSTROAD_STRESS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --ignore=tests/chaos $$(printf -- '--ignore=%s ' $$growing) $(ARGS); \
	case $$grown,$$? in 0,0 | 0,5 | 5,0) ;; *) exit 1 ;; esac # 5: ARGS selects nothing there

celery-suite: .venv/.installed-dev servers ## run Celery's own integration suite on mbus:// (ARGS="--broker rabbitmq -k test_chord")
	.venv/bin/python -m tools.celery_suite $(ARGS)

crash-table: .venv/.installed-dev ## kill the exchange at every persistence call and write the table of it
	@$(BIN)/python -m tools.crash_table $(ARGS)

container: .venv/.installed-dev ## build the container image with Buildah and run it
	@tools/servers.sh container
	@POSTROAD_CONTAINER=1 $(BIN)/python -m pytest tests/packaging/test_container.py $(ARGS)

test-fast: .venv/.installed-dev servers ## run the quick tests only
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

coverage: .venv/.installed-dev servers ## measure the branch coverage of the unit, parity and SQL tests; fails below the floor
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest $(or $(ARGS),tests/unit tests/parity tests/sql)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

images: .venv/.installed-dev servers ## take the screenshots of the documentation again
	@$(BIN)/python -m tools.screenshots $(ARGS)

first-run: ## clone this repository afresh, run `make up` there, and time it until the map moves
	@$(PYTHON) -m tools.first_run $(ARGS)

check: .venv/.installed-dev ## lint, formatting, types, layers, SQL syntax, forbidden names and words
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/check_sql.py
	@$(BIN)/python tools/check_names.py
	@$(BIN)/python tools/check_words.py

format: .venv/.installed-dev ## let ruff format and fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/.installed-dev ## measure everything that the documentation claims (ONLY=take, SCALE=0.1 for a quick run)
	@$(BIN)/python -m benchmarks --only="$(ONLY)" --scale="$(or $(SCALE),1)" $(ARGS)

cluster: .venv/.installed-dev ## start PostgreSQL x 3 under Patroni, RabbitMQ x 3, PgBouncer, HAProxy (DO=show, DO=stop)
	@tools/servers.sh cluster
	@$(BIN)/python -m proof.cluster $(or $(DO),start) $(ARGS)

proof: .venv/.installed-dev ## show the promises on real clusters under faults, write docs/proof (FULL=1, ONLY=faults, SEED=7)
	@tools/servers.sh cluster
	@$(BIN)/python -m proof --only="$(ONLY)" --seed="$(or $(SEED),1)" $(if $(SECONDS),--seconds=$(SECONDS)) $(if $(filter 1,$(FULL)),--full) $(ARGS)

docs: .venv/.installed-dev ## write the generated pages and build the documentation into site/
	@$(BIN)/python -m tools.docs
	@$(BIN)/zensical build --clean --strict

verify: .venv/.installed-dev ## everything that must hold before a release; fails on stale generated pages
	@$(BIN)/python -m tools.docs --check
	@$(MAKE) --no-print-directory check test docs

release: .venv/.installed-dev ## build wheel and sdist into dist/, check them, list dependencies and licences; no upload
	@tools/release.sh

constraints: .venv/.installed-dev ## write the versions now in .venv to constraints/all.txt
	@tools/constraints.sh

clean: ## remove what was built; the data folder stays
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage*
