//! Base64 for keys that are not text (the meta commands' `b` flag), as memcached reads and writes it.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// memcached wants the padding, and does not look at the bits before it that belong to no byte.
const ENGINE: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Appends `bytes` as base64, padded.
pub(super) fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + bytes.len().div_ceil(3) * 4, 0);
    ENGINE.encode_slice(bytes, &mut into[start..]).expect("the room is as long as the text");
}

/// Decodes base64 with its padding; `None` if it is none.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() { None } else { ENGINE.decode(text).ok() }
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
        assert_eq!(decode(b"Zg=="), decode(b"Zh=="), "bits that belong to no byte");
        for bad in ["", "%%%%", "Zm9", "Zm9vY", "Z===", "Zm=v", "===="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
