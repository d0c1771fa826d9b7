# `make demo`: build, compare controllers in the simulator, show where the report is.
# `make test`: all tests. Both do their own set-up.

.PHONY: help demo test lint bench setup clean

help:
	@echo "make demo    build, compare overload controllers in the simulator, show the report (about two minutes the first time)"
	@echo "make test    all tests, the model checker's included"
	@echo "make lint    formatting, clippy, documentation"
	@echo "make bench   nanoseconds per decision, events per second"

setup:
	@scripts/setup

demo: setup
	cargo build --release --locked -p leeward
	@scripts/demo

test: setup
	cargo test --workspace --locked
	RUSTFLAGS="--cfg loom" cargo test --locked --release --target-dir target/loom -p leeward-control -p leeward-runtime -p leeward-rpc --lib

lint:
	@scripts/setup lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

bench: setup
	cargo bench --locked -p leeward-control -p leeward-sim

clean:
	cargo clean
