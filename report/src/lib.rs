//! Results as one self-contained HTML page.
#![forbid(unsafe_code)]
