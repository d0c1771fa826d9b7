# `make demo`: build, overload a server on this machine with and without control, show where the report is.
# `make check`: what to run between two edits. `make test`: all tests. They do their own set-up.

.PHONY: help demo verdicts faults faults-short attached attached-quick framing framing-quick proxy-suites proxy-suites-quick proxy-recipes hostile hostile-short browser check test tests loom lint bench compare compare-threading compare-check ecosystem ecosystem-check capi capi-header capi-bench memcached proxy python python-check profiler profiler-test docs docs-browser docs-check docs-run report setup clean

# Crates with models of their concurrent structures, wherever they stand.
LOOM = $(shell scripts/loom-crates)

help:
	@echo "make demo              build, overload a server on this machine with and without control, show the report (a minute after the build)"
	@echo "make check             formatting, clippy and the quick tests: under two minutes once built"
	@echo "make test              all tests, the model checker's included: make tests, then make loom"
	@echo "make tests             all tests but the model checker's"
	@echo "make loom              the model checker's tests of concurrent structures"
	@echo "make lint              formatting, clippy, documentation"
	@echo "make bench             nanoseconds per decision, events per second"
	@echo "make verdicts          the papers' claims, all of them in full: hours (ARGS='--part 1/8 --continue --out DIR' for a part that goes on when called again)"
	@echo "make hostile           attacks on both ports, beside an honest client (HOSTILE=--help tells more)"
	@echo "make hostile-short     the attacks that have broken something before, once each"
	@echo "make faults            services with planted faults, which 'leeward watch' has to name (ARGS='--only lock' for some; needs root)"
	@echo "make faults-short      five of them, in C and Python"
	@echo "make attached          planted slow requests in Debian's redis, nginx, PostgreSQL and memcached and in Go, which 'leeward profile record --pid' has to find (needs root)"
	@echo "make attached-quick    a fifth of the requests, without measuring the cost"
	@echo "make framing           100,000 malformed requests to 'leeward proxy', HAProxy and nginx: what each refuses and what arrives (ARGS=--help tells more)"
	@echo "make framing-quick     3,000 of them: a few seconds"
	@echo "make proxy-suites      others' suites through 'leeward proxy': curl, h2spec, h2load, Autobahn, gRPC's interop cases (ARGS=--help tells more)"
	@echo "make proxy-suites-quick without what repeats others: about a minute"
	@echo "make proxy-recipes     the recipes of 'leeward proxy': in a pod, behind nginx, Envoy and HAProxy, before services in five languages"
	@echo "make browser           the dashboard in a real browser; pictures go to target/browser"
	@echo "make docs              the site, into target/site: open target/site/index.html"
	@echo "make docs-browser      the site in a real browser"
	@echo "make docs-run          the blocks of the guides that are marked to run"
	@echo "make docs-check        both"
	@echo "make report            what is new here, as a PDF in target/report"
	@echo "make python            the Python package as a wheel, into target/python/wheels"
	@echo "make python-check      the tests of the Python package"
	@echo "make profiler          what 'leeward cc' needs: the compiler plugin and the run-time, into target/profiler (clang 19)"
	@echo "make profiler-test     the tests of the profiler"
	@echo "make compare           our server against bare echoes and tonic, and what admission control costs (ARGS=--help tells more)"
	@echo "make compare-threading threading models of a tier beside the same tier on Tokio (ARGS=--help tells more)"
	@echo "make compare-check     whether the comparisons still compile"
	@echo "make ecosystem         the layer for axum, hyper and tonic beside its rivals (ARGS=--quick for a few minutes; scripts/setup ecosystem brings outside clients)"
	@echo "make ecosystem-check   the tests of that layer over real sockets"
	@echo "make capi              libleeward for servers in C and C++, into target/capi: libraries, headers, pkg-config, CMake, packages"
	@echo "make capi-header       leeward.h anew from its sources"
	@echo "make capi-bench        nanoseconds per request and lock through libleeward"
	@echo "make memcached         memcached with libleeward: patch, build, its own tests with the gate off and on (ARGS=--measure: overload, too)"
	@echo "make proxy             'leeward proxy' before services in five languages, beside HAProxy, nginx and Envoy: hours (ARGS=--quick for some ten minutes; ARGS=--continue goes on)"
	@echo "make setup             looks for Rust and a C linker, and installs the linker where it may"
	@echo "make clean             removes target/"
	@echo "LEEWARD=PROGRAM makes browser, docs-check, docs-run, faults, faults-short, attached, attached-quick, framing, framing-quick, proxy-suites, proxy-suites-quick, proxy-recipes, hostile, hostile-short, profiler-test and python-check take that program instead of building it"

setup:
	@scripts/setup

demo: setup
	cargo build --release --locked -p leeward
	@scripts/demo

check: setup
	@scripts/setup lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked --lib --bins --quiet

test: tests loom

# Always the whole workspace, so that nothing is compiled twice. Most tests wait, so two per CPU.
TESTED = --workspace --locked
tests: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
tests: setup
	cargo test $(TESTED) --no-fail-fast
	LEEWARD_TEST_IO_URING=off cargo test $(TESTED) --test it faults::
	LEEWARD_TEST_ALLOCATOR=delay cargo test $(TESTED) --test it faults::

loom: setup
	RUSTFLAGS="--cfg loom" cargo test --locked --profile loom --target-dir target/loom $(LOOM:%=-p %) --lib $(ARGS)

lint:
	@scripts/setup lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

bench: setup
	cargo bench --locked -p leeward-controllers -p leeward-recording -p leeward-threading -p leeward-sim

# Verdicts of record: the program names its commit.
verdicts: export LEEWARD_COMMIT = $(shell git describe --always --dirty)
verdicts: setup
	cargo run --release --locked -p leeward -- verdicts --seeds 5 $(ARGS)

# A workspace of its own (see compare/Cargo.toml), in a folder of its own.
compare: setup
	cargo run --release --locked --manifest-path compare/Cargo.toml --target-dir target/compare -- $(ARGS)

# The layer under other people's frameworks, beside its rivals; a workspace of its own, as above.
ecosystem: setup
	cargo run --release --locked --manifest-path ecosystem/Cargo.toml --target-dir target/ecosystem -- $(ARGS)

# Its lock file still fits, its examples compile, and its tests over real sockets pass.
ecosystem-check:
	cargo test --locked --all-targets --manifest-path ecosystem/Cargo.toml --target-dir target/ecosystem $(ARGS)
	cargo check --locked --all-features --manifest-path profiler/tests/futures-service/Cargo.toml --target-dir target/ecosystem

# libleeward, with what a packager needs.
capi: setup
	scripts/capi

capi-header:
	LEEWARD_RENEW_HEADER=1 cargo test --locked -p leeward-capi --test suite header::the_committed

capi-bench: capi
	$(CC) -O2 -Itarget/capi/include guard/capi/bench/requests.c -o target/capi/bench target/capi/lib/libleeward.a -lpthread -ldl -lm
	target/capi/bench

# memcached's source of Debian with our patch.
memcached: capi
	ecosystem/memcached/run $(ARGS)

# The proxy before services in other languages, beside other proxies. LEEWARD=PROGRAM takes that one.
proxy: setup
	@scripts/setup proxy
	$(if $(LEEWARD),,cargo build --release --locked -p leeward)
	cargo build --release --locked --manifest-path ecosystem/Cargo.toml --target-dir target/ecosystem --bin proxy
	LEEWARD=$(or $(LEEWARD),target/release/leeward) target/ecosystem/release/proxy $(ARGS)

# The wheel, and its tests with what `python/requirements.txt` pins, in a virtual environment that the script makes.
python: setup
	scripts/python wheel

python-check: setup
	scripts/python check

compare-threading: setup
	cargo run --release --locked --manifest-path compare/Cargo.toml --target-dir target/compare -- threading $(ARGS)

# Its lock file and its sources still fit to the workspace.
compare-check:
	cargo check --locked --all-targets --manifest-path compare/Cargo.toml --target-dir target/compare

# Attacks on both ports beside an honest client; HOSTILE="--attacks pings --rounds 5", for instance.
hostile: setup
	cargo build --release --locked $(if $(LEEWARD),,-p leeward) -p leeward-hostile
	target/release/hostile run --leeward $(or $(LEEWARD),target/release/leeward) $(HOSTILE)

# Those that have broken something before, once each: is the server well during and after them?
hostile-short:
	cargo build --locked $(if $(LEEWARD),,-p leeward) -p leeward-hostile
	target/debug/hostile run --short --leeward $(or $(LEEWARD),target/debug/leeward) --attacks \
	    pings,pings-unread,demands,statistics,flood,udp-foreign,udp-greetings,udp-forged,udp-sizes,half-calls,mutated,churn,mc-stats,mc-gets,mc-big-sets,mc-half,mc-unread,mc-random

# Services with planted faults in five languages; languages that are not installed are skipped.
faults: setup
	$(if $(LEEWARD),,cargo build --release --locked -p leeward)
	tests/faults/examine --leeward $(or $(LEEWARD),target/release/leeward) $(ARGS)

faults-short: setup
	python3 -m unittest discover tests/faults/driver
	$(if $(LEEWARD),,cargo build --locked -p leeward)
	tests/faults/examine --leeward $(or $(LEEWARD),target/debug/leeward) \
	    --only lock/c --only downstream/python --only stopped/c --only accept/c --only quota/c

# Planted slow requests in redis, nginx, PostgreSQL, memcached and Go services, as Debian and
# `go build` made them, recorded as they run. Services that are not installed are skipped.
attached: setup
	@scripts/setup attached
	$(if $(LEEWARD),,cargo build --release --locked -p leeward)
	profiler/tests/attached/run --leeward $(or $(LEEWARD),target/release/leeward) $(ARGS)

attached-quick: setup
	@scripts/setup attached
	$(if $(LEEWARD),,cargo build --locked -p leeward)
	profiler/tests/attached/run --leeward $(or $(LEEWARD),target/debug/leeward) --what faults --what left --what bad --quick $(ARGS)

# Request smuggling: our proxy beside HAProxy and nginx, in front of one recording backend. A rival
# that is not installed is named and left out.
framing: setup
	$(if $(LEEWARD),,cargo build --release --locked -p leeward)
	tests/framing/compare --leeward $(or $(LEEWARD),target/release/leeward) $(ARGS)

framing-quick: setup
	$(if $(LEEWARD),,cargo build --locked -p leeward)
	tests/framing/compare --quick --leeward $(or $(LEEWARD),target/debug/leeward) $(ARGS)

# Others' suites through our proxy, each beside the same without it. A program that is not installed is
# named, and its suites are left out.
proxy-suites: setup
	@scripts/setup suites
	$(if $(LEEWARD),,cargo build --release --locked -p leeward)
	tests/suites/run --leeward $(or $(LEEWARD),target/release/leeward) $(ARGS)

proxy-suites-quick: setup
	@scripts/setup suites
	$(if $(LEEWARD),,cargo build --locked -p leeward)
	tests/suites/run --quick --leeward $(or $(LEEWARD),target/debug/leeward) $(ARGS)

# Needs nginx, Envoy and Kubernetes' schemas, and the services' languages.
proxy-recipes: setup
	@scripts/setup recipes
	@scripts/setup suites
	$(if $(LEEWARD),,cargo build --locked -p leeward)
	tests/recipes/proxy --leeward $(or $(LEEWARD),target/debug/leeward) $(ARGS)

# The dashboard in Debian's Chromium, headless. LEEWARD=PROGRAM takes that one instead of building it.
browser: setup
	@scripts/setup browser
	$(if $(LEEWARD),,cargo build -q --locked -p leeward)
	cd tests/browser && LEEWARD=$(or $(LEEWARD),target/debug/leeward) npm test --silent

# The site, without Rust and without a network once the generator is there. A folder `docs` exists:
# these targets are phony.
docs:
	@scripts/setup docs
	@target/docs/venv/bin/python docs/site/build.py

docs-check: docs-browser docs-run

# The site in Debian's Chromium.
docs-browser: docs
	@scripts/setup browser
	cd tests/browser && npm run --silent site

# The blocks that readers copy. LEEWARD=PROGRAM takes that one.
docs-run: setup
	$(if $(LEEWARD),,cargo build -q --locked -p leeward)
	tests/recipes/blocks --leeward $(or $(LEEWARD),target/debug/leeward)

report:
	@scripts/setup report
	@target/docs/venv/bin/python docs/report/build.py

# The plugin and the run-time are C++ and C, for clang: nothing else here needs them.
profiler:
	@scripts/setup profiler
	$(MAKE) -C profiler OUT=$(CURDIR)/target/profiler

# LEEWARD=PROGRAM takes that one instead of building it.
profiler-test: profiler
	profiler/experiments/ld_thesis.py
	profiler/tests/run --out target/profiler
	$(if $(LEEWARD),,cargo build -q --locked -p leeward)
	profiler/tests/planted --out target/profiler --leeward $(or $(LEEWARD),target/debug/leeward)
	profiler/tests/joined --out target/profiler --leeward $(or $(LEEWARD),target/debug/leeward)
	profiler/tests/readers --out target/profiler --leeward $(or $(LEEWARD),target/debug/leeward)

clean:
	cargo clean
