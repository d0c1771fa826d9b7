//! Finds the instructions by which a function returns.
//!
//! Contains no knowledge of files.

/// Returns where the code returns, as offsets from `begin`.
#[cfg(target_arch = "x86_64")]
pub(super) fn returns(code: &[u8], begin: u64) -> Vec<u64> {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};
    let decoder = Decoder::with_ip(64, code, begin, DecoderOptions::NONE);
    let is_return = |instruction: &iced_x86::Instruction| instruction.mnemonic() == Mnemonic::Ret;
    decoder.into_iter().filter(is_return).map(|instruction| instruction.ip()).collect()
}

/// Returns where the code returns, as offsets from `begin`.
#[cfg(target_arch = "aarch64")]
pub(super) fn returns(code: &[u8], begin: u64) -> Vec<u64> {
    /// `ret`, by the link register.
    const RETURN: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
    let offsets = (begin..).step_by(4);
    code.chunks_exact(4).zip(offsets).filter(|(word, _)| *word == RETURN).map(|(_, offset)| offset).collect()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn returns_are_told_from_bytes_within_instructions() {
        // push rbp; mov eax, 0xc3c3c3c3; ret; pop rbp; ret
        let code = [0x55, 0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0x5d, 0xc3];
        assert_eq!(returns(&code, 100), [106, 108]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded(code in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(returns(&code, 7).iter().all(|at| (7..7 + code.len() as u64).contains(at)));
        }
    }
}
