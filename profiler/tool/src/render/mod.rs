//! Renders timelines: as text for the terminal, and as a self-contained page.

mod html;
mod text;

pub use html::page;
pub use text::timeline;

use crate::analysis::timeline::BarKind;

impl BarKind {
    /// Describes a bar of this kind.
    pub fn description(self) -> &'static str {
        match self {
            BarKind::Call => "in a function",
            BarKind::Wait => "waiting",
            BarKind::Held => "holding the lock that the request waits for",
            BarKind::Blocked => "off the CPU, blocked",
            BarKind::Descheduled => "off the CPU, though it could run",
            BarKind::Queued => "in a queue",
        }
    }
}

/// Greatest length of template or generic parameters that are kept.
const PARAMETERS: usize = 24;

/// Removes long template parameters from a text: `std::thread::_State_impl<…>::_M_run`.
pub fn shorten(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        // `operator<`, `operator<<`, `<impl …>` at the start of a path, and unclosed parameters
        // stay unchanged.
        let opens =
            before.chars().next_back().is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
        let length = if opens && !before.ends_with("operator") { closes(from) } else { None };
        match length {
            Some(length) if length > PARAMETERS + 2 => {
                out.push_str("<…>");
                rest = &from[length..];
            }
            Some(length) => {
                out.push_str(&from[..length]);
                rest = &from[length..];
            }
            None => {
                out.push('<');
                rest = &from[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Returns the number of bytes from a `<` to the end of the matching `>`.
fn closes(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            // `->` closes nothing.
            '>' if before != '-' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        before = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn long_type_parameters_are_elided() {
        let check = |text: &str, expected: &str| assert_eq!(shorten(text), expected);
        check(
            "in std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::$_0> > >::_M_run at std_thread.h:210",
            "in std::thread::_State_impl<…>::_M_run at std_thread.h:210",
        );
        check("Vec<u8>::push", "Vec<u8>::push");
        check("map<std::string, std::vector<std::string>>::at", "map<…>::at");
        check("operator<< (a, b)", "operator<< (a, b)");
        check("call<fn(aaaaaaaaaaaaaaaaaaaaaaaaa) -> b>::x", "call<…>::x");
        check("broken<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "broken<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        check("<app::Store as core::ops::function::FnOnce>::call", "<app::Store as core::ops::function::FnOnce>::call");
    }
}
