# `make demo`: build, overload a server on this machine with and without control, show where the report is.
# `make test`: all tests. Both do their own set-up.

.PHONY: help demo test lint bench compare profiler profiler-test setup clean

help:
	@echo "make demo    build, overload a server on this machine with and without control, show the report (a minute after the build)"
	@echo "make test    all tests, the model checker's included"
	@echo "make lint    formatting, clippy, documentation"
	@echo "make bench   nanoseconds per decision, events per second"
	@echo "make profiler what 'leeward cc' needs: the compiler plugin and the run-time, into target/profiler (clang 19); make profiler-test tests them"
	@echo "make compare our server against bare echoes and tonic, and what admission control costs (ARGS=--help tells more)"

setup:
	@scripts/setup

demo: setup
	cargo build --release --locked -p leeward
	@scripts/demo

test: setup
	cargo test --workspace --locked
	LEEWARD_TEST_IO_URING=off cargo test --locked -p leeward-rpc --test it faults::
	LEEWARD_TEST_ALLOCATOR=delay cargo test --locked -p leeward-rpc --test it faults::
	RUSTFLAGS="--cfg loom" cargo test --locked --release --target-dir target/loom -p leeward-control -p leeward-runtime -p leeward-rpc --lib

lint:
	@scripts/setup lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

bench: setup
	cargo bench --locked -p leeward-control -p leeward-sim

# A workspace of its own (see compare/Cargo.toml), in a folder of its own.
compare: setup
	cargo run --release --locked --manifest-path compare/Cargo.toml --target-dir target/compare -- $(ARGS)

# The plugin and the run-time are C++ and C, for clang: nothing else here needs them.
profiler:
	@scripts/setup profiler
	$(MAKE) -C profiler OUT=$(CURDIR)/target/profiler

profiler-test: profiler
	profiler/tests/run --out target/profiler
	cargo build -q --locked -p leeward
	profiler/tests/planted --out target/profiler --leeward target/debug/leeward

clean:
	cargo clean
