//! Requests: uprobes and system calls, filtered in the kernel by BPF.
