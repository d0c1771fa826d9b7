//! Names of functions as a user writes them, and wrappers: library functions that only call the
//! next one.

/// Returns whether a part of a name denotes a closure or `async` body: `{closure#0}`,
/// `{{closure}}`, `{async_fn_env#0}`.
fn is_closure(part: &str) -> bool {
    part.starts_with('{') && part.ends_with('}')
}

/// Returns the name of the function that contains a closure or is an `async fn` with this body.
pub fn without_closures(name: &str) -> &str {
    let mut name = name;
    while let Some((before, part)) = name.rsplit_once("::").filter(|(_, part)| is_closure(part)) {
        let _ = part;
        name = before;
    }
    name
}

/// Returns the name of an `async fn` as written, if this is its body: the first closure in a
/// function without code.
pub(crate) fn async_function(name: &str, has_code: impl FnOnce(&str) -> bool) -> Option<String> {
    let base = without_closures(name);
    let rest = name.strip_prefix(base)?.strip_prefix("::")?;
    let (body, inner) = rest.split_once("::").map_or((rest, None), |(body, inner)| (body, Some(inner)));
    let is_body = matches!(body, "{closure#0}" | "{{closure}}") || body.starts_with("{async_fn");
    if !is_body || has_code(base) {
        return None;
    }
    Some(inner.map_or(base.to_string(), |inner| format!("{base}::{inner}")))
}

/// Returns whether a function has this name, or this name within namespaces.
pub fn is_called(function: &str, name: &str) -> bool {
    function == name || function.strip_suffix(name).is_some_and(|before| before.ends_with("::"))
}

/// Returns whether a function was compiled for the body of the `async fn` with this name: its type
/// is among the parameters.
pub(crate) fn is_async_body_of(function: &str, name: &str) -> bool {
    let mut rest = function;
    // The empty name would be found at the same place for ever.
    while let Some(at) = rest.find(name).filter(|_| !name.is_empty()) {
        let before = rest[..at].chars().next_back();
        let is_whole = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
        rest = &rest[at + name.len()..];
        // An `async` method of the handler's own type calls the handler; the body is part of that
        // method.
        let is_method = before == Some('<') && rest.starts_with(" as ") && function.ends_with('}');
        if is_whole && (rest.starts_with("::{") || is_method) {
            return true;
        }
    }
    false
}

/// Returns whether a function drops values of a type: often one function for all types without a
/// destructor.
pub(crate) fn is_drop(function: &str) -> bool {
    function.starts_with("core::ptr::drop_in_place") || function.starts_with("core::ptr::drop_glue")
}

/// Returns the last part of a name, without its parameters: `poll` for `<Timeout<T> as
/// Future>::poll::<U>`.
pub(crate) fn last_part(name: &str) -> &str {
    let name = name.split_once("::<").filter(|(before, _)| !before.starts_with('<')).map_or(name, |(before, _)| before);
    let last = name.rsplit("::").next().unwrap_or(name);
    let last = last.split('<').next().unwrap_or(last);
    if last.is_empty() { name } else { last }
}

/// Crates of runtimes and frameworks: their functions stand around those of a program.
const LIBRARIES: [&str; 24] = [
    "std",
    "core",
    "alloc",
    "tokio",
    "tokio_util",
    "tokio_stream",
    "tokio_rustls",
    "mio",
    "futures",
    "futures_util",
    "futures_core",
    "futures_channel",
    "hyper",
    "hyper_util",
    "h2",
    "http_body_util",
    "axum",
    "axum_core",
    "tower",
    "tower_http",
    "tonic",
    "reqwest",
    "leeward_tower",
    "leeward_trace",
];

/// Methods of futures and closures, which combinators implement by calling the inner one's.
const PASSED_ON: [&str; 8] =
    ["poll", "poll_next", "poll_inner", "call", "call_mut", "call_once", "do_call", "catch_unwind"];

/// Returns whether a function is of the standard library, a runtime or a framework.
pub(crate) fn is_library(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '(', '*', '[']);
    let path = ["mut ", "dyn ", "const "].into_iter().fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    let (root, _) = path.split_once("::").unwrap_or((path, ""));
    let root = root.split('[').next().unwrap_or(root);
    // Debug information has methods without the path of their type: `poll<tokio::runtime::…>`.
    let method = root.split_once('<').filter(|(method, _)| PASSED_ON.contains(method));
    let root = method.map_or(root, |(_, parameter)| parameter);
    name.contains("::") && LIBRARIES.contains(&root)
}

/// Returns a name without the parameters of its types: `<Vec as Index>::index` for
/// `<Vec<u8> as Index<usize>>::index`.
pub(crate) fn without_parameters(name: &str) -> String {
    let (mut depth, mut short) = (0_usize, String::new());
    for (at, letter) in name.char_indices() {
        match letter {
            '<' if at == 0 => short.push('<'),
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    short.replace("::::", "::").trim_end_matches("::").into()
}

/// Returns whether `outer`, which spends all of its time in `inner`, is a wrapper by its name.
pub(crate) fn wraps(outer: &str, inner: &str) -> bool {
    let last = last_part(outer);
    outer != inner
        && outer.contains("::")
        && (PASSED_ON.contains(&last) || is_closure(last) || last == last_part(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libraries_are_told_from_those_of_the_program() {
        for name in [
            "tokio::time::sleep::Sleep::poll_elapsed",
            "<tokio::net::tcp::stream::TcpStream as tokio::io::AsyncRead>::poll_read",
            "<&mut core::future::Ready<app::Order> as core::future::Future>::poll",
            "<dyn core::any::Any>::type_id",
            "poll<tokio::runtime::blocking::task::BlockingTask<fn()>, tokio::runtime::blocking::BlockingSchedule>",
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in
            ["app::serve", "<app::Store as tower::Service<R>>::call", "tokio_app::main", "poll", "", "sort<app::Row>"]
        {
            assert!(!is_library(name), "{name}");
        }
    }

    #[test]
    fn parameters_of_types_are_left_out() {
        let check = |name, expected| assert_eq!(without_parameters(name), expected);
        check("<Vec<u8> as Index<usize>>::index", "<Vec as Index>::index");
        check("tokio::io::util::read_int::ReadU8<&mut TcpStream>::poll", "tokio::io::util::read_int::ReadU8::poll");
        check("app::call::<u8>", "app::call");
        check("app::call", "app::call");
    }

    #[test]
    fn closures_belong_to_the_function_around_them() {
        let check = |name, expected| assert_eq!(without_closures(name), expected);
        check("newapp::dear::{closure#0}", "newapp::dear");
        check("newapp::dear::{{closure}}::{{closure}}", "newapp::dear");
        check("newapp::dear::{async_fn_env#0}", "newapp::dear");
        check("newapp::dear", "newapp::dear");
        check("{closure#0}", "{closure#0}");
    }

    #[test]
    fn the_body_of_an_async_function_has_its_name() {
        let written = |name| async_function(name, |base| base == "newapp::main");
        assert_eq!(written("newapp::dear::{closure#0}").as_deref(), Some("newapp::dear"));
        assert_eq!(written("newapp::dear::{{closure}}").as_deref(), Some("newapp::dear"));
        assert_eq!(written("newapp::dear::{closure#0}::{closure#1}").as_deref(), Some("newapp::dear::{closure#1}"));
        // In a function with its own code it is a closure.
        assert_eq!(written("newapp::main::{closure#0}"), None);
        assert_eq!(written("newapp::dear::{closure#1}"), None);
        assert_eq!(written("newapp::dear"), None);
    }

    #[test]
    fn names_match_at_the_end_of_paths() {
        let check = |function, name, expected| assert_eq!(is_called(function, name), expected);
        check("handle", "handle", true);
        check("store::Server::handle", "handle", true);
        check("store::Server::handle", "Server::handle", true);
        check("rehandle", "handle", false);
    }

    #[test]
    fn an_async_body_is_recognised_in_its_pollers_parameters() {
        let poll = "<a::Timeout<newapp::dear::{closure#0}> as core::future::Future>::poll";
        assert!(is_async_body_of(poll, "newapp::dear") && is_async_body_of(poll, "dear"));
        assert!(is_async_body_of("<newapp::dear as axum::Handler<((),), ()>>::call::{closure#0}", "newapp::dear"));
        assert!(!is_async_body_of("<newapp::dear as axum::Handler<((),), ()>>::call", "newapp::dear"));
        assert!(!is_async_body_of(poll, ""));
        assert!(
            !is_async_body_of(poll, "ear")
                && !is_async_body_of(poll, "newapp::cheap")
                && !is_async_body_of("newapp::dear", "dear")
        );
    }

    #[test]
    fn dropping_a_future_is_no_call_of_it() {
        assert!(is_drop("core::ptr::drop_in_place::<a::Timeout<newapp::dear::{closure#0}>>"));
        assert!(is_drop("core::ptr::drop_in_place<newapp::dear::{{closure}}>"));
        assert!(!is_drop("<newapp::Queue as core::ops::Drop>::drop"));
    }

    #[test]
    fn wrappers_are_recognised_by_name() {
        assert_eq!(last_part("<a::Timeout<b::C> as core::future::Future>::poll"), "poll");
        assert_eq!(last_part("a::spawn::<b::C>"), "spawn");
        assert!(wraps("<a::Timeout<b::C> as Future>::poll", "<b::C as Future>::poll"));
        assert!(wraps("<a::Timeout<b::C> as Future>::poll", "newapp::dear"));
        assert!(wraps("std::panicking::catch_unwind", "newapp::main"));
        assert!(!wraps("newapp::dear", "newapp::work"));
        assert!(!wraps("fib", "fib"));
    }
}
