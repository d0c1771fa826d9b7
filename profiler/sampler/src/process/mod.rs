//! Threads and modules of the recorded process.
