//! Text of scenarios as markup: what is between backticks is code. Nothing else is read as markup.

use maud::{Markup, html};

/// Draws `text`; a backtick without a second one stays as it is.
pub(crate) fn text(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // Without a partner, the last backtick belongs to the text before it.
    let paired = if parts.len().is_multiple_of(2) { parts.len() - 2 } else { parts.len() };
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index < paired && index % 2 == 1 { code { (part) } } @else {
                @if index > paired { "`" }
                (part)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_backticks_are_code() {
        let check = |given: &str, expected: &str| assert_eq!(text(given).into_string(), expected);
        check("run `leeward run demo` and `x`.", "run <code>leeward run demo</code> and <code>x</code>.");
        check("no code", "no code");
        check("a ` b", "a ` b");
        check("`a` and ` b", "<code>a</code> and ` b");
        check("`<b>`", "<code>&lt;b&gt;</code>");
    }
}
