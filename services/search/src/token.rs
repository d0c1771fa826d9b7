//! Splits a text into words, for indexing and for queries. Does not contain a choice of words.

/// Length of the longest word in bytes, in lower case. Longer runs of letters (checksums, URLs
/// without a break) are not words.
pub const WORD_MAX: usize = 64;

/// Calls `word` with each word of `text`, in order.
///
/// Words are maximal runs of letters and digits of any script, in lower case.
///
/// ```
/// use leeward_search::token;
///
/// let mut words = Vec::new();
/// token::words("A C++-like LANGUAGE, naïve.", |word| words.push(word.to_string()));
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
            // Discarded at once: a megabyte without a blank must not occupy a megabyte here.
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
    fn too_long_words_are_ignored() {
        let (fits, long) = ("a".repeat(WORD_MAX), "a".repeat(WORD_MAX + 1));
        assert_eq!(all(&format!("{fits} b {long} c")), [fits.as_str(), "b", "c"]);
        assert_eq!(all(&long.repeat(5)), [""; 0]);
    }

    proptest! {
        #[test]
        fn tokenizing_is_idempotent(text in "\\PC{0,80}") {
            let once = all(&text);
            // Some letters have a lower-case form with a combining mark, which is not a letter and
            // splits the word.
            prop_assume!(once.iter().all(|word| word.chars().all(char::is_alphanumeric)));
            prop_assert_eq!(all(&once.join(" ")), once);
        }
    }
}
