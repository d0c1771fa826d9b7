//! Perf events: samples and switches with stacks.
