//! Base64 for binary keys (the meta commands' `b` flag), as memcached reads and writes it.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PAD: u8 = b'=';

/// Appends `bytes` as base64, padded.
pub(super) fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let sum = group.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for position in 0..4 {
            let letter = LETTERS[(sum >> (18 - 6 * position) & 63) as usize];
            into.push(if position > group.len() { PAD } else { letter });
        }
    }
}

/// Decodes base64 as leniently as memcached: skips other characters and stops after the first
/// padding.
///
/// Returns `None` without whole groups of four, or with more than two characters of padding.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let value = |letter: &u8| match letter {
        &PAD => Some(None),
        letter => LETTERS.iter().position(|known| known == letter).map(|value| Some(value as u32)),
    };
    let letters: Vec<Option<u32>> = text.iter().filter_map(value).collect();
    if letters.is_empty() || !letters.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for group in letters.chunks(4) {
        let sum = group.iter().fold(0, |sum, letter| sum << 6 | letter.unwrap_or(0));
        let pads = group.iter().filter(|letter| letter.is_none()).count();
        bytes.extend_from_slice(sum.to_be_bytes()[1..].get(..3usize.checked_sub(pads)?).filter(|_| pads < 3)?);
        if pads > 0 {
            break;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn base64_round_trips(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }

    #[test]
    fn invalid_base64_is_rejected() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            let mut encoded = Vec::new();
            encode(bytes.as_bytes(), &mut encoded);
            assert_eq!(encoded, text.as_bytes());
        }
        assert_eq!(decode(b"Zg=="), decode(b"Zh=="), "bits that belong to no byte");
        assert_eq!(decode(b"%Zm\t9v"), Some(b"foo".to_vec()), "characters that are none of base64's");
        assert_eq!(decode(b"Zg==Zm9v"), Some(b"f".to_vec()), "text behind the padding");
        for bad in ["", "%%%%", "Zm9", "Zm9vY", "Z===", "===="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
