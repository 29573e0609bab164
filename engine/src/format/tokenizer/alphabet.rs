//! The byte alphabet: one printable character per byte.
//!
//! Promises: [`char_of`] and [`byte_of`] are inverse to each other on all 256 bytes. Printable
//! Latin-1 bytes stand for themselves; the other 68, in ascending order, are U+0100 onwards. Leaves
//! to the vocabulary which tokens are written in this alphabet.

/// Whether the byte is written as the character with its own number.
const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// Characters in byte order.
const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut displaced = 0;
    let mut byte = 0;
    while byte < 256 {
        // INVARIANT: both arms stay below U+0144, where every number is a character.
        chars[byte] = if stands_for_itself(byte as u8) {
            byte as u8 as char
        } else {
            displaced += 1;
            match char::from_u32(0x100 + displaced - 1) {
                Some(c) => c,
                None => panic!("not a character"),
            }
        };
        byte += 1;
    }
    assert!(displaced == DISPLACED as u32);
    chars
};

/// How many bytes do not stand for themselves.
const DISPLACED: usize = 68;

/// Displaced bytes in the order of their characters.
const DISPLACED_BYTES: [u8; DISPLACED] = {
    let mut bytes = [0; DISPLACED];
    let mut next = 0;
    let mut byte = 0;
    while byte < 256 {
        if !stands_for_itself(byte as u8) {
            bytes[next] = byte as u8;
            next += 1;
        }
        byte += 1;
    }
    bytes
};

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    CHARS[usize::from(byte)]
}

/// The byte that `c` stands for, if it is in the alphabet.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let number = u32::from(c);
    match u8::try_from(number) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => DISPLACED_BYTES.get(usize::try_from(number - 0x100).ok()?).copied(),
    }
}

/// The bytes that `text` stands for, or nothing if some character is not in the alphabet.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

/// `text` with each of its bytes as a character.
pub(super) fn chars_of(text: &str) -> String {
    text.bytes().map(char_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_alphabet() {
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!(chars_of(" \n\u{0}\u{ad}a!"), "ĠĊĀÂŃa!");
        for foreign in ['\u{144}', ' ', '\u{7f}', '\u{ad}', '\u{ff5c}', '\u{10ffff}'] {
            assert_eq!(byte_of(foreign), None);
        }
    }
}
