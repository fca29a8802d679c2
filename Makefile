# make bench          set up, measure ext4 and btrfs on a virtual board, say which is better, write a report
# make test           set up, run the tests, also those on the virtual lab, except the slow ones
# make test-all       the slow tests as well: further boards, ways of flashing and ways to end
# make check          check style, types and layers, run unit tests: before each commit
# make test-fresh     make check on a minimal Debian, RELEASE=bookworm or trixie; FULL=1: also make test, and benches of three users
# make test-guest     run labgrid's own tests with fsjoule installed and without, and compare: half an hour
# make test-fuzz      read N mutated run folders (default 1000) with every command; SEED repeats a run
# make test-boards    build the cards of all boards whole (KERNELS=6.1,6.12), measure on emulated boards with real boot loaders
# make test-pipeline  run a merge request's pipeline like GitLab, with gitlab-runner if it is there: half an hour or more
# make test-lava      drive the virtual lab with a real LAVA server, end N jobs at random moments (SEED): half an hour; fetches 400 MiB at first
# make test-faults    inject faults into benches and check the result (docs/faults.md): N=300 JOBS=2 SEED=1 KINDS=meter,ctrl-c
# make test-matrix    run a matrix on 12 boards in guest time behind 3 exporters; 6 of them fail: ten minutes (docs/faults.md)
# make test-flashing  flash by UMS 20 times, by TFTP and in place, with faults (docs/flashing.md): SEED=16 WAYS=ums,tftp,in-place,in-place-states,fastboot
# make report         make Allure's report of all runs in results/, with trends; to view it: .venv/bin/fsjoule report serve
# make lint           check style, types, layers
# make firmware       build the meter's firmware for the Black Pill and the host; needs Zephyr (ZEPHYR_BASE)
# make firmware-test  build the firmware for the host and test it there
# make setup-bench    only set up what make bench needs; make setup: what the tests need as well; output: build/setup.log
# make dist           build a source archive and a wheel in build/dist, check them, and try the wheel in an environment of its own
# make image          build an image for containers from the wheel (buildah): build/dist/*-oci.tar, with what is in it
# make changelog      move the changes of changes/ to CHANGELOG.md, as those of VERSION=1.2.3
# make release        make all files of the release that this commit is tagged as, in build/dist (CONTRIBUTING.md)
# make clean          remove everything that make built in this folder, but not results/ and the image cache
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

export PYTHON ?= python3
UV_VERSION := $(shell sed -n 's,^uv==\([^ ]*\).*,\1,p' .ci/uv.txt)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Tests mount filesystems, attach loop devices and become other users. A bench needs root for packages only.
AS_ROOT := $(SUDO) $(if $(SUDO),--preserve-env)
BIN := .venv/bin

FS ?= ext4,btrfs
KERNEL ?= 6.1
SUITE ?= quick
REPEAT ?= auto
# The board in guest time; for that in real time: env/virtual.yaml.
ENVIRONMENT ?=
RESULTS ?= results
REPORT ?= report
# 0: one fault of each kind.
N ?= 0
JOBS ?= 2
SEED ?=
KINDS ?=
KERNELS ?= 6.1
WAYS ?= ums,tftp,in-place

# One test file per worker, in pytest's order: conftest.py puts the longest files first.
# Many tests wait for a board: three workers for two cores.
WORKERS ?= $(shell expr $$(nproc) \* 3 / 2)
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

export FSJOULE_SETUP_STARTED := $(shell date +%s.%N)
# Some environments forbid Python its compiled files. Each of hundreds of processes would then compile 500 modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench test test-all check unit style types layers test-fresh test-guest test-fuzz test-boards test-pipeline test-lava test-faults test-matrix test-flashing report lint format firmware firmware-test setup setup-bench setup-report dist image changelog release clean help

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

bench: setup-bench
	$(BIN)/fsjoule bench $(if $(ENVIRONMENT),--lg-env $(ENVIRONMENT)) --fs $(FS) --kernel $(KERNEL) --suite $(SUITE) --repeat $(REPEAT)$(if $(SEED), --seed $(SEED))

test: setup
	$(AS_ROOT) $(BIN)/pytest $(PARALLEL) -m "not slow" --durations 25

test-all: setup
	$(AS_ROOT) $(BIN)/pytest $(PARALLEL) --durations 25

check: setup
	$(MAKE) --no-print-directory -j4 style types layers unit

# Unit tests wait for nothing: one worker per core is enough. The types take longest and have one core, so they go first.
unit: setup
	nice -n 5 $(BIN)/pytest -n $$(nproc) --dist loadfile --no-loadscope-reorder tests/unit

test-fresh: build/packages.stamp
	$(AS_ROOT) env RELEASE=$(RELEASE) tests/fresh/run $(if $(FULL),bench sudo wheel check test)

test-guest: setup
	tests/guest/run

test-fuzz: setup
	$(BIN)/python tests/fuzz/run_folders.py --count $(or $(filter-out 0,$(N)),1000) --seed $(or $(SEED),1) --chains $(or $(CHAINS),1)

test-boards: setup
	$(AS_ROOT) env KERNELS=$(KERNELS) $(BIN)/pytest --durations 25 -o faulthandler_timeout=3600 tests/boards

test-pipeline: setup
	$(AS_ROOT) $(BIN)/pytest tests/pipeline

test-lava: setup
	$(AS_ROOT) env ENDS=$(N) SEED=$(SEED) $(BIN)/pytest --durations 25 -o faulthandler_timeout=3600 tests/lava

test-faults: setup
	$(AS_ROOT) env PYTHONPATH=tests:tests/helpers $(BIN)/python -m faults -n $(N) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) --kinds "$(KINDS)"

test-matrix: setup
	$(AS_ROOT) $(BIN)/pytest -o faulthandler_timeout=3600 tests/matrix

test-flashing: setup
	$(AS_ROOT) env PYTHONPATH=tests:tests/helpers $(BIN)/python -m flashing $(if $(SEED),--seed $(SEED)) --ways $(WAYS)

report: setup-report
	@mkdir -p $(RESULTS)
	$(BIN)/fsjoule report build $(RESULTS) --output $(REPORT)

lint: style types layers

style: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: setup
	$(BIN)/pyright

layers: setup
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

image: setup-bench dist
	$(AS_ROOT) containers/build build/dist

changelog: setup-bench
	build/uv/bin/uv tool run --quiet towncrier@26.9.0 build --yes --version $(VERSION)

release: setup-bench
	@.ci/release

firmware:
	@meter/firmware.sh build

firmware-test: setup
	@meter/firmware.sh test
	$(BIN)/pytest tests/lab/test_firmware.py

# What a bench needs; what tests and checks need as well; Allure's Node.
setup-bench: build/python.stamp

setup: setup-bench build/packages-tests.stamp build/python-tests.stamp

setup-report: build/python-report.stamp

build/packages.stamp: PURPOSE := bench
build/packages-tests.stamp: PURPOSE := tests
build/packages-tests.stamp: | build/packages.stamp
build/packages.stamp build/packages-tests.stamp: src/fsjoule/host/setup/packages.toml
	@.ci/set-up packages $(PURPOSE)
	@touch $@

build/uv/bin/uv: | build/packages.stamp
	@.ci/set-up uv $(UV_VERSION)

# A bench leaves alone what tests have installed: going to and fro changes nothing. It has the extras, so that each command
# works, but not Node, which is larger than all of them and only makes Allure's report.
build/python.stamp: SYNC := --inexact --no-dev --all-extras --no-extra report
build/python-report.stamp: SYNC := --inexact --no-dev --all-extras
build/python-tests.stamp: SYNC := --all-extras
build/python-tests.stamp: | build/python.stamp
build/python.stamp build/python-report.stamp build/python-tests.stamp: pyproject.toml uv.lock | build/packages.stamp build/uv/bin/uv
	@.ci/set-up python $(SYNC)
	@touch $@

# An environment as of a user: none of the clone's packages, and an empty folder.
dist: build/uv/bin/uv
	rm -rf build/dist build/dist-tried
	build/uv/bin/uv build --system-certs --out-dir build/dist
	build/uv/bin/uv tool run --system-certs --from twine==6.2.0 twine check --strict build/dist/*.whl build/dist/*.gz
	$(PYTHON) -m venv build/dist-tried
	build/dist-tried/bin/pip install --disable-pip-version-check --quiet build/dist/*.whl
	mkdir build/dist-tried/empty
	cd build/dist-tried/empty && for words in --version "board list" choices; do env -u PYTHONPATH ../bin/fsjoule $$words > /dev/null; done
	du -sh build/dist/* build/dist-tried

clean:
	rm -rf build .venv
