//! The attribute `#[trace]` for the crate `leeward-trace`, which documents it. `expand` builds the
//! traced function.
#![forbid(unsafe_code)]

mod expand;

use proc_macro::TokenStream;

/// Records the calls of a function, or of all functions of an `impl` block or trait, for the
/// profiler.
///
/// See the crate `leeward-trace`.
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
