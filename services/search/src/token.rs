//! Words of a text: what is indexed and what can be asked for. Never here: which words matter.

/// The longest word in bytes, lower-case. Longer runs of letters (checksums, URLs without a break) are no words.
pub const WORD_MAX: usize = 64;

/// Calls `word` with each word of `text`, in order: maximal runs of letters and digits (of any script), lower-case.
///
/// ```
/// let mut words = Vec::new();
/// leeward_search::token::words("A C++-like LANGUAGE, naïve.", |word| words.push(word.to_string()));
/// assert_eq!(words, ["a", "c", "like", "language", "naïve"]);
/// ```
pub fn words(text: &str, mut word: impl FnMut(&str)) {
    let mut current = String::new();
    let mut too_long = false;
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() {
            current.push(letter.to_ascii_lowercase());
        } else if letter.is_alphanumeric() {
            current.extend(letter.to_lowercase());
        } else {
            if !too_long && !current.is_empty() && current.len() <= WORD_MAX {
                word(&current);
            }
            current.clear();
            too_long = false;
        }
        if current.len() > WORD_MAX {
            // Forgotten at once: a megabyte without a blank should not become a megabyte here.
            too_long = true;
            current.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        words(text, |word| all.push(word.into()));
        all
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        assert_eq!(all("x86_64 and 3D—Größe"), ["x86", "64", "and", "3d", "größe"]);
        assert_eq!(all(""), [""; 0]);
        assert_eq!(all(" .,;\n\t"), [""; 0]);
    }

    #[test]
    fn what_is_too_long_is_no_word() {
        let (fits, long) = ("a".repeat(WORD_MAX), "a".repeat(WORD_MAX + 1));
        assert_eq!(all(&format!("{fits} b {long} c")), [fits.as_str(), "b", "c"]);
        assert_eq!(all(&long.repeat(5)), [""; 0]);
    }

    proptest! {
        #[test]
        fn words_of_words_are_the_words(text in "\\PC{0,80}") {
            let once = all(&text);
            // Some letters have a lower-case form that is no letter by itself (combining marks), and falls apart again.
            prop_assume!(once.iter().all(|word| word.chars().all(char::is_alphanumeric)));
            prop_assert_eq!(all(&once.join(" ")), once);
        }
    }
}
