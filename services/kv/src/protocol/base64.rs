//! Base64 for keys that are not text (the meta commands' `b` flag).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` as base64, padded.
pub(super) fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let mut block = [0; 4];
        block[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(block);
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) as usize & 63;
            into.push(if place <= three.len() { ALPHABET[digit] } else { b'=' });
        }
    }
}

/// Decodes base64 with its padding; `None` if it is none.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text[..text.len() - padding].chunks(4) {
        let mut bits = 0;
        for place in 0..4 {
            let digit = match four.get(place) {
                None => 0,
                Some(byte @ b'A'..=b'Z') => byte - b'A',
                Some(byte @ b'a'..=b'z') => byte - b'a' + 26,
                Some(byte @ b'0'..=b'9') => byte - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        let mut text = Vec::new();
        encode(b"foo", &mut text);
        assert_eq!(text, b"Zm9v");
        for bad in ["", "%%%%", "Zm9", "Zm9vY", "Z===", "Zm=v", "===="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
