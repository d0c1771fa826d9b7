//! Demangles symbols.

/// Length of the longest shown name, in bytes.
const LONGEST: usize = 200;

/// Suffix of a function's second body, which runs during a recording (`profiler/pass/Sleds.cpp`);
/// names omit it.
const INSTRUMENTED_SUFFIX: &str = ".leeward";

/// Returns a symbol's name without mangling, parameters and hashes, shortened to about [`LONGEST`].
pub(super) fn name(symbol: &str) -> String {
    let name = full_name(symbol);
    if name.len() <= LONGEST {
        return name;
    }
    // The end contains the method's name.
    let (begin, end) = (name.floor_char_boundary(LONGEST * 3 / 4), name.ceil_char_boundary(name.len() - LONGEST / 4));
    format!("{}…{}", &name[..begin], &name[end..])
}

/// Returns the same name without shortening.
pub(super) fn full_name(symbol: &str) -> String {
    demangled(symbol.strip_suffix(INSTRUMENTED_SUFFIX).unwrap_or(symbol))
}

fn demangled(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let symbol_ = symbol.strip_suffix(".cold").unwrap_or(symbol);
    let (ascii, tokens) = with_tokens(symbol_);
    let name = cpp_demangle::Symbol::new(&ascii).ok().and_then(|parsed| parsed.demangle_with_options(&options).ok());
    let restored = |name: String| tokens.iter().fold(name, |name, (letter, token)| name.replace(token, letter));
    name.map(restored).unwrap_or_else(|| symbol.to_string())
}

/// Returns a symbol with a token of the same length in place of each letter that is not ASCII, and
/// the tokens: `cpp_demangle` knows only ASCII.
fn with_tokens(symbol: &str) -> (String, Vec<(String, String)>) {
    let (mut ascii, mut tokens) = (symbol.to_string(), Vec::new());
    // No other `$` may look like a token's.
    if symbol.is_ascii() || symbol.contains('$') {
        return (ascii, tokens);
    }
    for name in ('a'..='z').chain('A'..='Z') {
        let Some(letter) = ascii.chars().find(|letter| !letter.is_ascii()) else { break };
        let (letter, width) = (letter.to_string(), letter.len_utf8());
        let token = format!("${name:.<rest$}", rest = width - 1);
        ascii = ascii.replace(&letter, &token);
        tokens.push((letter, token));
    }
    (ascii, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_demangled() {
        let check = |symbol, expected: &str| assert_eq!(name(symbol), expected);
        check("request_handler", "request_handler");
        check("_ZN5store8snapshotEv", "store::snapshot");
        check("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
        check("_Znot a name", "_Znot a name");
        check("request_handler.leeward", "request_handler");
        check("_ZN5store8snapshotEv.leeward", "store::snapshot");
        check("_ZN9ünïcode7façadeEi", "ünïcode::façade");
        check("_ZN6日本1aaE", "_ZN6日本1aaE");
        check("_ZN6日本6日本E", "日本::日本");
        check("_Z3größe", "_Z3größe");
        check("_Z7größev", "größe");
        assert!(name(&"x".repeat(5000)).len() < 210);
        assert!(name(&format!("{}_poll", "x".repeat(5000))).ends_with("x_poll"));
    }
}
