//! The pre-tokenizer: text into the pieces that are merged each on its own.
//!
//! Promises: the pieces of three splits in a row, each isolating its matches inside the pieces of
//! the one before: up to three digits; a run of Chinese characters or kana; then words, punctuation
//! and white space. Together the pieces are the text. Time is linear in the text, whatever it
//! holds.
//!
//! Leaves to its caller: special tokens, which are cut out before, and merging.

use tokenizers::utils::SysRegex;

const DIGITS: &str = r"\p{N}{1,3}";

const CHINESE_AND_KANA: &str = "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";

/// The last split without its white-space rule `\s+(?!\S)`, which [`Splitter::words`] carries out:
/// a look-ahead would be run by a backtracking matcher that gives up in the middle of a long run.
const WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"| ?[\p{P}\p{S}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+",
);

/// The three splits.
pub(super) struct Splitter {
    digits: SysRegex,
    chinese_and_kana: SysRegex,
    words: SysRegex,
}

impl Splitter {
    /// Compiles the three expressions.
    pub(super) fn new() -> Self {
        let compile = |pattern| SysRegex::new(pattern).expect("the pattern is a constant");
        Self {
            digits: compile(DIGITS),
            chinese_and_kana: compile(CHINESE_AND_KANA),
            words: compile(WORDS),
        }
    }

    /// Calls `emit` with each piece of `text` in order; no piece is empty.
    pub(super) fn split(&self, text: &str, emit: &mut impl FnMut(&str)) {
        isolate(&self.digits, text, &mut |piece| {
            isolate(&self.chinese_and_kana, piece, &mut |piece| self.words(piece, emit));
        });
    }

    /// The last split. A run of white space before a further character keeps all but its last
    /// character, which may begin the next piece; matching starts again at that character.
    fn words(&self, text: &str, emit: &mut impl FnMut(&str)) {
        let mut rest = text;
        while !rest.is_empty() {
            let mut done = 0;
            let mut handed_back = false;
            for (start, end) in self.words.find_iter(rest) {
                let kept = if end < rest.len() { shorten(&rest[start..end]) } else { end - start };
                emit_unless_empty(&rest[done..start], emit);
                emit_unless_empty(&rest[start..start + kept], emit);
                done = start + kept;
                if done < end {
                    handed_back = true;
                    break;
                }
            }
            if !handed_back {
                emit_unless_empty(&rest[done..], emit);
                return;
            }
            rest = &rest[done..];
        }
    }
}

/// How many bytes of a match stay when more text follows: all, unless it is two or more characters
/// of white space without a line end.
fn shorten(matched: &str) -> usize {
    // INVARIANT: of the alternatives only the last matches white space without `\r` or `\n`, and a
    // run that holds one of these is matched by the alternative before. So a match is either this
    // run in full or has a character at its end that is no white space, or a line end.
    let Some(last) = matched.chars().next_back() else { return 0 };
    let keeps_all = !last.is_whitespace() || last == '\r' || last == '\n';
    if keeps_all || matched.len() == last.len_utf8() {
        return matched.len();
    }
    matched.len() - last.len_utf8()
}

/// Emits the matches of `pattern` in `text`, and what lies between them.
fn isolate(pattern: &SysRegex, text: &str, emit: &mut impl FnMut(&str)) {
    let mut done = 0;
    for (start, end) in pattern.find_iter(text) {
        emit_unless_empty(&text[done..start], emit);
        emit_unless_empty(&text[start..end], emit);
        done = end;
    }
    emit_unless_empty(&text[done..], emit);
}

fn emit_unless_empty(piece: &str, emit: &mut impl FnMut(&str)) {
    if !piece.is_empty() {
        emit(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Fixture {
        cases: Vec<Case>,
    }

    #[derive(serde::Deserialize)]
    struct Case {
        text: String,
        pieces: Vec<String>,
    }

    #[test]
    fn fixture_texts_have_the_expected_pieces() {
        let fixture = include_str!("../../../../fixtures/tokenizer/cases.json");
        let Fixture { cases } = serde_json::from_str(fixture).unwrap();
        let splitter = Splitter::new();
        assert!(cases.len() >= 400);
        for Case { text, pieces } in cases {
            let mut found = Vec::new();
            splitter.split(&text, &mut |piece| found.push(piece.to_owned()));
            assert_eq!(found, pieces, "{text:?}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut pieces = Vec::new();
        Splitter::new().split(text, &mut |piece| pieces.push(piece.to_owned()));
        assert_eq!(pieces, expected, "{text:?}");
    }

    #[test]
    fn pieces_follow_the_three_splits() {
        check("", &[]);
        check("1234567", &["123", "456", "7"]);
        check("a12b", &["a", "12", "b"]);
        check("中文abc", &["中文", "abc"]);
        check("don't", &["don", "'t"]);
        check("a   b", &["a", "  ", " b"]);
        check("a   ", &["a", "   "]);
        check("a   1", &["a", "   ", "1"]);
        check("a \u{3000}1", &["a", " \u{3000}", "1"]);
        check("a  \n  b", &["a", "  \n", " ", " b"]);
        check("  (x)", &[" ", " (", "x", ")"]);
        check("!\r\n\r\nx", &["!\r\n\r\n", "x"]);
        check("\0\0a", &["\0", "\0a"]);
        check("  \0", &[" ", " ", "\0"]);
        check("a\u{301}\u{302}b", &["a\u{301}\u{302}b"]);
    }
}
