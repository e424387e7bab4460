//! The words that the check refuses, and how it finds them in a sentence.

use std::collections::BTreeMap;

use super::prose::{Kind, Prose};

/// The longest sentence of a page or a doc comment, in words.
const SENTENCE: usize = 25;
/// The longest name of a test, in words.
const NAME: usize = 8;

/// Each refused pattern with its advice. A pattern is a list of:
/// - `a|b`: one of these words. With `?` at the end, it is optional.
/// - `^a`: this word, at the beginning of a sentence with a capital letter. Headings and questions are allowed.
/// - `!a|b`: the next word is not one of these.
/// - `<a|b`: the previous word is not one of these.
/// - `$`: no noun follows. The clause ends, or continues with one of [`FUNCTION_WORDS`].
/// - `~`: the sentence is not a question.
const RULES: &[(&str, &str)] = &[
    ("nobody|somebody|whoever|whomever", SUBJECT),
    ("he|him|his|himself", SUBJECT),
    ("a|the person", "the operator"),
    ("persons", "operators, users"),
    ("^who", START),
    ("^what", START),
    ("^nor", "a sentence with subject, verb and `not`"),
    ("^so is|are|was|were", "subject and verb in this order, with `also`"),
    ("anew", "again; for VMs: create again"),
    ("beside", "next to, in addition to, except"),
    ("by now", "now, already, or nothing"),
    ("any more $", "no longer"),
    ("of its|their own", "its own, a separate one"),
    ("is|are|was|were|be|been|being not|never|only|then|once? told", "who configures, reports or asks what"),
    ("is|are|was|were|be|been not|never|only? had", "has, gets, is available"),
    ("go|goes|went|going by !itself|themselves|himself|hand", "uses, reads, follows"),
    ("stand|stands|stood !for", "is, is in, exists"),
    (
        "is|are|was|were|be|been not|already|still|also|always|never|no|yet? longer? there ~ \
         !a|an|any|no|anything|nothing|something|one|more|another|enough|room|such",
        "exists, or is missing",
    ),
    ("is|are|was|were none", "does not exist, is missing, or `there is no` with a noun"),
    ("mend|mends|mended|mending", "fix, repair"),
    ("ill", "unhealthy"),
    ("is|are|was|were|be|been|being not|all|again|yet? well $", "healthy"),
    // From the glossary. Words that have another sense too, such as `hold` or `tell`, are left out.
    ("control node|nodes", "control-plane node"),
    ("control-node|control-nodes", "control-plane node"),
    ("<certificate|certification authority|authorities", "CA"),
    ("virtual address|addresses", "virtual IP"),
    ("way back", "rollback"),
    ("turn|turns|turned|turning|take|takes|took|taken|taking back", "roll back, restore, withdraw"),
    ("rests !on|upon|with", "pauses"),
    ("found good", "healthy"),
    ("minors", "minor versions"),
    ("minor $", "minor version"),
    ("half a vm|template", "an incomplete VM or template"),
    ("laid|lay|lays|lie|lies ready", "imported"),
    ("trouble|troubles", "error, finding"),
    ("in the way !that|which|in|back", "what blocks what"),
    ("let|lets|letting it|them|him? in", "admits"),
    ("turn|turns|turned|turning down", "denies"),
    ("good for", "valid until, valid for"),
];

const SUBJECT: &str = "a subject with a name: the operator, the controller, the node, a client";
const START: &str = "a sentence that begins with its subject";

/// Words that continue a sentence without a noun: after `minor` they show that it is used as a noun itself.
const FUNCTION_WORDS: &str = "after again also although and are as at because before but by can cannot could did does either for from \
    had has have if in is it may meanwhile must neither nobody nor of on once or since so than that then \
    there they to unless until was were when where which while who will with without would";

/// A full stop after these words does not end the sentence.
const ABBREVIATIONS: &[&str] = &["e.g", "i.e", "cf", "vs"];

/// One refused pattern in a sentence.
pub struct Hit {
    /// Counted from 1.
    pub line: usize,
    /// The words that are refused, or the length.
    pub found: String,
    pub sentence: String,
    pub instead: &'static str,
}

/// A word, or a punctuation mark.
struct Token<'t> {
    at: usize,
    text: &'t str,
    /// In lower case, without a possessive `'s`.
    lower: String,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn is_capital(&self) -> bool {
        self.text.starts_with(char::is_uppercase)
    }
}

/// A part of a pattern.
enum Element {
    Begins(&'static str),
    Word(Vec<&'static str>),
    Optional(Vec<&'static str>),
    NotBefore(Vec<&'static str>),
    NotAfter(Vec<&'static str>),
    NoNoun,
    NoQuestion,
}

/// All rules, by the first word of a match.
pub struct Rules(BTreeMap<&'static str, Vec<(Vec<Element>, &'static str)>>);

impl Rules {
    pub fn new() -> Self {
        let mut rules: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (pattern, instead) in RULES {
            let is_first = |element: &&str| !element.starts_with('<');
            let first = pattern.split_whitespace().find(is_first).unwrap_or_default();
            for word in first.trim_start_matches('^').split('|') {
                rules.entry(word).or_default().push((pattern.split_whitespace().map(element).collect(), *instead));
            }
        }
        Self(rules)
    }

    /// The refused patterns in a piece of prose.
    pub fn hits(&self, prose: &Prose) -> Vec<Hit> {
        let tokens = tokens(&prose.text);
        let mut hits = Vec::new();
        for sentence in sentences(&prose.text, &tokens) {
            let Some((first, last)) = sentence.first().zip(sentence.last()) else { continue };
            let line = |token: &Token| prose.line + prose.text[..token.at].matches('\n').count();
            let text = &prose.text[first.at..last.at + last.text.len()];
            let mut hit = |line: usize, found: String, instead| {
                let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
                hits.push(Hit { line, found, sentence, instead });
            };
            for (at, token) in sentence.iter().enumerate() {
                for (pattern, instead) in self.0.get(token.lower.as_str()).into_iter().flatten() {
                    if let Some(end) = end_of_match(pattern, sentence, at, prose.kind) {
                        let found: Vec<&str> = sentence[at..end].iter().map(|token| token.text).collect();
                        hit(line(token), format!("`{}`", found.join(" ")), *instead);
                    }
                }
            }
            let words = sentence.iter().filter(|token| token.is_word()).count();
            if prose.kind == Kind::Name && words > NAME {
                hit(prose.line, format!("a name of {words} words"), "subject, condition and result in 8 words at most");
            } else if prose.kind.has_limit() && words > SENTENCE {
                hit(line(first), format!("a sentence of {words} words"), "one fact a sentence, 25 words at most");
            }
        }
        hits
    }
}

fn element(text: &'static str) -> Element {
    let words = |text: &'static str| text.split('|').collect();
    match (text.split_at(1), text.strip_suffix('?')) {
        (("^", word), _) => Element::Begins(word),
        (("!", rest), _) => Element::NotBefore(words(rest)),
        (("<", rest), _) => Element::NotAfter(words(rest)),
        (("$", ""), _) => Element::NoNoun,
        (("~", ""), _) => Element::NoQuestion,
        (_, Some(rest)) => Element::Optional(words(rest)),
        _ => Element::Word(words(text)),
    }
}

/// The end of the match that begins at a token.
fn end_of_match(pattern: &[Element], sentence: &[Token], at: usize, kind: Kind) -> Option<usize> {
    let asks = sentence.last().is_some_and(|token| token.text == "?");
    let mut end = at;
    for element in pattern {
        let next = sentence.get(end);
        let is = |words: &[&str]| next.is_some_and(|token| words.contains(&token.lower.as_str()));
        let fits = match element {
            Element::Begins(word) => {
                let begins = !sentence[..at].iter().any(Token::is_word) && !asks && is(&[word]);
                end += 1;
                begins && kind != Kind::Heading && (kind == Kind::Name || sentence[at].is_capital())
            }
            Element::Word(words) => {
                end += 1;
                is(words)
            }
            Element::Optional(words) => {
                end += usize::from(is(words));
                true
            }
            Element::NotBefore(words) => !is(words),
            Element::NotAfter(words) => {
                !at.checked_sub(1).is_some_and(|at| words.contains(&sentence[at].lower.as_str()))
            }
            Element::NoNoun => {
                next.is_none_or(|token| !token.is_word() || FUNCTION_WORDS.split(' ').any(|word| word == token.lower))
            }
            Element::NoQuestion => !asks,
        };
        if !fits {
            return None;
        }
    }
    Some(end)
}

/// The words and punctuation marks of a text. A mark within a word, as in `1.36` or `well-known`, belongs to the word.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter.is_whitespace() {
            continue;
        }
        let mut end = at + letter.len_utf8();
        if is_letter(letter) {
            while let Some((next, letter)) = letters.peek().copied() {
                let after = &text[next + letter.len_utf8()..];
                let is_within = "-.'’/:@+".contains(letter) && after.starts_with(is_letter);
                if !is_letter(letter) && !is_within {
                    break;
                }
                end = next + letter.len_utf8();
                letters.next();
            }
        }
        let text = &text[at..end];
        let lower = text.to_lowercase();
        let lower = lower.strip_suffix("'s").or(lower.strip_suffix("’s")).unwrap_or(&lower).to_owned();
        tokens.push(Token { at, text, lower });
    }
    tokens
}

/// The sentences of a text. A full stop ends one if a word with a capital letter, a number or code follows.
fn sentences<'s, 't>(text: &str, tokens: &'s [Token<'t>]) -> Vec<&'s [Token<'t>]> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    for (at, token) in tokens.iter().enumerate() {
        let is_short = at > 0 && token.text == "." && ABBREVIATIONS.contains(&tokens[at - 1].lower.as_str());
        if !matches!(token.text, "." | "!" | "?") || is_short {
            continue;
        }
        let rest = &text[token.at + 1..];
        let begins_next = tokens[at + 1..]
            .iter()
            .find(|token| token.is_word())
            .is_none_or(|token| token.is_capital() || token.text.starts_with(|c: char| c == '_' || c.is_ascii_digit()));
        if begins_next && rest.trim_start_matches([')', '"', '*', ']']).starts_with(char::is_whitespace) {
            sentences.push(&tokens[begin..=at]);
            begin = at + 1;
        }
    }
    sentences.push(&tokens[begin..]);
    sentences
}
