//! Expands an item with `#[trace]`: adds a guard at the start of each function.
//!
//! The functions map tokens to tokens, so that they can be tested. Does not depend on the run-time.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Block, Error, ImplItem, Item, Result, Signature, TraitItem, parse_quote, parse2};

/// Returns the item with a guard in each of its functions.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    // The attribute of an `impl` block removes `#[trace(skip)]` inside it. By itself the attribute
    // does nothing.
    if arguments.to_string() == "skip" {
        return Ok(item);
    }
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "accepted are #[trace] and #[trace(skip)]"));
    }
    let mut item: Item = parse2(item)?;
    match &mut item {
        Item::Fn(function) => {
            if let Some(why) = rejection_reason(&function.sig, &function.attrs) {
                return Err(Error::new_spanned(&function.sig.ident, why));
            }
            guard(&mut function.attrs, &mut function.block);
        }
        Item::Impl(block) => {
            for item in &mut block.items {
                if let ImplItem::Fn(function) = item
                    && !skipped(&mut function.attrs)
                    && rejection_reason(&function.sig, &function.attrs).is_none()
                {
                    guard(&mut function.attrs, &mut function.block);
                }
            }
        }
        Item::Trait(block) => {
            for item in &mut block.items {
                if let TraitItem::Fn(function) = item
                    && !skipped(&mut function.attrs)
                    && rejection_reason(&function.sig, &function.attrs).is_none()
                    && let Some(body) = &mut function.default
                {
                    guard(&mut function.attrs, body);
                }
            }
        }
        other => return Err(Error::new_spanned(other, "#[trace] is for functions, impl blocks and traits")),
    }
    Ok(item.into_token_stream())
}

/// Returns the reason why a function can't have a guard.
fn rejection_reason(signature: &Signature, attributes: &[Attribute]) -> Option<&'static str> {
    if signature.asyncness.is_some() {
        return Some("an async fn returns at once, and later polls do its work: trace the functions that it calls");
    }
    if signature.constness.is_some() {
        return Some("a const fn may run at compile time, where there is no clock");
    }
    let naked = attributes.iter().any(|attribute| attribute.to_token_stream().to_string().contains("naked"));
    naked.then_some("a naked function can't contain other code")
}

/// Returns whether a function in a block has `#[trace(skip)]`; removes that attribute.
fn skipped(attributes: &mut Vec<Attribute>) -> bool {
    let before = attributes.len();
    attributes.retain(|attribute| {
        let ours = attribute.path().segments.last().is_some_and(|segment| segment.ident == "trace");
        let skip = attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "skip");
        !(ours && skip)
    });
    attributes.len() < before
}

/// Puts the guard at the start of a body, and prevents inlining.
///
/// The profiler identifies a function by an address in it. An inlined function's calls would count
/// for the caller.
fn guard(attributes: &mut Vec<Attribute>, body: &mut Block) {
    attributes.retain(|attribute| !attribute.path().is_ident("inline"));
    attributes.push(parse_quote!(#[inline(never)]));
    body.stmts.insert(0, parse_quote!(let _leeward_call = ::leeward_trace::Call::enter();));
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn check(item: TokenStream, expected: TokenStream) {
        assert_eq!(expand(quote!(), item).unwrap().to_string(), expected.to_string());
    }

    #[test]
    fn a_function_gets_a_guard_and_is_not_inlined() {
        check(
            quote!(
                #[inline]
                pub(crate) fn double<T: Copy>(x: T) -> u64 {
                    2
                }
            ),
            quote!(
                #[inline(never)]
                pub(crate) fn double<T: Copy>(x: T) -> u64 {
                    let _leeward_call = ::leeward_trace::Call::enter();
                    2
                }
            ),
        );
    }

    #[test]
    fn impl_blocks_are_traced_except_untraceable_and_skipped_functions() {
        check(
            quote!(
                impl Store {
                    const SIZE: usize = 1;
                    fn get(&self) {}
                    #[trace(skip)]
                    fn tiny(&self) {}
                    #[leeward_trace::trace(skip)]
                    fn tinier(&self) {}
                    async fn later(&self) {}
                    const fn size() -> usize {
                        1
                    }
                }
            ),
            quote!(
                impl Store {
                    const SIZE: usize = 1;
                    #[inline(never)]
                    fn get(&self) {
                        let _leeward_call = ::leeward_trace::Call::enter();
                    }
                    fn tiny(&self) {}
                    fn tinier(&self) {}
                    async fn later(&self) {}
                    const fn size() -> usize {
                        1
                    }
                }
            ),
        );
    }

    #[test]
    fn only_trait_methods_with_bodies_are_traced() {
        check(
            quote!(
                trait Handler {
                    fn name(&self) -> &str;
                    fn handle(&self) {
                        self.name();
                    }
                }
            ),
            quote!(
                trait Handler {
                    fn name(&self) -> &str;
                    #[inline(never)]
                    fn handle(&self) {
                        let _leeward_call = ::leeward_trace::Call::enter();
                        self.name();
                    }
                }
            ),
        );
    }

    #[test]
    fn untraceable_items_are_rejected_with_a_reason() {
        let check = |arguments, item, expected: &str| {
            let error = expand(arguments, item).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            quote!(),
            quote!(
                async fn f() {}
            ),
            "polls",
        );
        check(
            quote!(),
            quote!(
                const fn f() {}
            ),
            "compile time",
        );
        check(
            quote!(),
            quote!(
                #[unsafe(naked)]
                extern "C" fn f() {
                    naked_asm!("ret")
                }
            ),
            "naked",
        );
        check(
            quote!(),
            quote!(
                struct S;
            ),
            "functions, impl blocks and traits",
        );
        check(
            quote!(level = 3),
            quote!(
                fn f() {}
            ),
            "accepted are",
        );
    }
}
