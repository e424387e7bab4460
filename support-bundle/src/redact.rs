//! Removes secrets from text: known values, and anything with the form of a secret. Removing too much is a nuisance, too little
//! a leak; so in doubt a text is removed. Independent of the source of the text.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::secret::Secret;

mod markup;

/// The replacement of a secret.
pub const REMOVED: &str = "[removed]";

/// Endings of names whose value is a secret, in lower case.
const NAMES: &[&str] = &[
    "secret",
    "password",
    "passwd",
    "passphrase",
    "password_hash",
    "password-hash",
    "token",
    "key-data",
    "private_key",
    "private-key",
    "privatekey",
    "client_key",
    "client-key",
    "clientkey",
    "cakey",
    "secret_key",
    "secret-key",
    "secretkey",
    "certificate-key",
    "certificatekey",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
    "authorization",
    "cookie",
];

/// Headers of HTTP: the value has the rest of the line, as in `Cookie: a=b; c=d`.
const LINES: [&str; 2] = ["authorization", "cookie"];

/// Shorter values are ignored, because they would be found everywhere.
const SHORTEST: usize = 6;

/// Removes secrets from texts.
pub struct Redactor {
    known: Vec<Secret>,
}

impl Redactor {
    /// A redactor that also knows these values.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut known = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.expose().len() >= SHORTEST) {
            // In plain form, as a JSON string, and in base64.
            let json = serde_json::Value::from(secret.expose()).to_string();
            known.push(Secret::new(json[1..json.len() - 1].to_owned()));
            known.push(Secret::new(STANDARD.encode(secret.expose())));
            known.push(secret);
        }
        Self { known }
    }

    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), REMOVED);
            }
        }
        let text = markup::blocks(&markup::elements(&private_keys(&text)));
        let mut clean = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            clean.push_str(&words(&named_values(&credentials(line))));
        }
        clean
    }
}

/// Private keys in PEM (RFC 7468), with real or escaped line ends. Each line may have a journal's prefix. The beginning or the
/// end may be cut off.
fn private_keys(text: &str) -> String {
    const END: &str = "PRIVATE KEY-----";
    /// No private key is longer, prefixes included, in bytes.
    const LONGEST: usize = 32 << 10;
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(END) {
        let label = rest[..at].rfind("-----").map_or(at, |dashes| dashes);
        let line = &rest[label..at];
        if line.starts_with("-----BEGIN ") {
            clean.push_str(&rest[..label]);
            clean.push_str(REMOVED);
            let inside = &rest[at + END.len()..];
            rest = match inside.find(END).filter(|end| *end < LONGEST && inside[..*end].contains("-----END ")) {
                Some(end) => &inside[end + END.len()..],
                None => after_key_lines(inside),
            };
        } else {
            // An end without a beginning: the lines before it are the key.
            clean.push_str(before_key_lines(&rest[..label]));
            clean.push_str(REMOVED);
            rest = &rest[at + END.len()..];
        }
    }
    clean.push_str(rest);
    clean
}

fn ends_in_base64(line: &str) -> bool {
    let last = line.trim_end().rsplit([' ', '\t']).next().unwrap_or_default();
    last.len() >= 4 && last.bytes().all(is_base64)
}

fn after_key_lines(text: &str) -> &str {
    let mut rest = text;
    // Escaped line ends: the key is in one line, up to the next quote.
    if let Some(quoted) = rest.strip_prefix("\\n") {
        return quoted.find('"').map_or("", |quote| &quoted[quote..]);
    }
    rest = rest.strip_prefix('\n').unwrap_or(rest);
    while let Some(end) = rest.find('\n') {
        if !ends_in_base64(&rest[..end]) {
            return rest;
        }
        rest = &rest[end + 1..];
    }
    if ends_in_base64(rest) { "" } else { rest }
}

fn before_key_lines(text: &str) -> &str {
    let mut kept = text;
    // The beginning of the line with the end mark, such as a journal's prefix.
    let start = kept.rfind('\n').map_or(0, |end| end + 1);
    if kept[start..].contains("\\n") {
        return &kept[..start];
    }
    kept = &kept[..start];
    loop {
        let without = kept.strip_suffix('\n').unwrap_or(kept);
        let start = without.rfind('\n').map_or(0, |end| end + 1);
        if without.is_empty() || !ends_in_base64(&without[start..]) {
            return kept;
        }
        kept = &kept[..start];
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte)
}

/// `scheme://user:password@host`: removes the part before the at sign (RFC 3986, 3.2.1).
fn credentials(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c)).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(sign) => {
                clean.push_str(REMOVED);
                &after[sign..]
            }
            None => after,
        };
    }
    clean.push_str(rest);
    clean
}

/// `name = value`, `name: value`, `"name": "value"`, `--name value` and the like, if the name marks the value as a secret. The time
/// grows with the length of the line only: no part of a value is searched again for another name.
fn named_values(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut clean = String::with_capacity(line.len());
    let mut quotes = Quotes { line: line.as_bytes(), at: 0, is_escaped: false, is_open: false };
    let mut done = 0;
    for name in name_ends(&lower) {
        let Some((start, is_field)) = value_start(line, &lower, name).filter(|(start, _)| *start >= done) else {
            continue;
        };
        let value = Value {
            text: &line[start..],
            is_field,
            // A double quote ends the text around it.
            is_enclosed: quotes.are_open_at(start) && !line[start..].starts_with('"'),
            is_quoted_name: line[name..].starts_with(['"', '\'', '\\']),
            is_line: LINES.iter().any(|end| lower[..name].ends_with(end)),
            is_block: markup::begins_escaped_block(&line[name..]),
        };
        if let Some(secret) = value.secret() {
            clean.push_str(&line[done..start + secret.start]);
            clean.push_str(REMOVED);
            done = start + secret.end;
        }
    }
    clean.push_str(&line[done..]);
    clean
}

/// Where the value of the name that ends at `name` begins, and whether it follows a colon or is in a list. `None` without a
/// value.
fn value_start(line: &str, lower: &str, name: usize) -> Option<(usize, bool)> {
    let skip =
        |from: usize, blanks: &str| line.len() - line[from..].trim_start_matches(|c: char| blanks.contains(c)).len();
    // The name may be in quotes, also in escaped ones.
    let after = skip(name, "\"'\\");
    let sign = skip(after, " \t");
    match line[sign..].chars().next()? {
        found @ ('=' | ':') => Some((skip(sign, " \t=:>"), found == ':')),
        // A command line as a list of texts in quotes.
        ',' if after > name && is_option(&lower[..name]) => Some((skip(sign + 1, " \t"), true)),
        // An option's value follows a blank. So do the words of a sentence, which stay.
        _ if sign > after && is_option(&lower[..name]) => Some((sign, false)),
        _ => None,
    }
}

/// A value, and what follows it in its line.
struct Value<'l> {
    text: &'l str,
    /// Whether it follows a colon or is in a list, as in YAML and JSON.
    is_field: bool,
    /// Whether it is within a text in double quotes.
    is_enclosed: bool,
    /// Whether its name is in quotes, as in JSON.
    is_quoted_name: bool,
    /// Whether it has the rest of the line.
    is_line: bool,
    /// Whether it is a block scalar of YAML with escaped line ends.
    is_block: bool,
}

impl Value<'_> {
    /// The place of the secret. `None` if nothing of the value is secret.
    fn secret(&self) -> Option<Range<usize>> {
        let Self { text, is_field, is_enclosed, is_quoted_name, is_line, is_block } = *self;
        let escapes = text.len() - text.trim_start_matches('\\').len();
        let range = match text[escapes..].chars().next() {
            _ if is_block => 0..line_end(text, is_enclosed),
            // Quotes do not end the value of a header. They end the value of a field with a quoted name, as in JSON.
            Some('"' | '\'') if is_line && !is_quoted_name => 0..line_end(text, is_enclosed),
            Some(quote @ ('"' | '\'')) => {
                let start = escapes + 1;
                let (end, after) = quoted(&text[start..], quote, escapes);
                let (end, after) = (start + end, start + after);
                let joined = self.joined(after, escapes);
                start..if joined > after { joined } else { end }
            }
            // The names within a structure are looked at one by one. The items of another list have no names.
            Some('{') if is_field && escapes == 0 => return None,
            Some('[') if is_field && escapes == 0 && !text.starts_with(REMOVED) => {
                let items = &text[1..];
                if items.trim_start().starts_with('{') {
                    return None;
                }
                1..1 + listed(items)
            }
            _ if self.is_literal() => return None,
            _ if is_line => 0..line_end(text, is_enclosed),
            _ => {
                let end = self.joined(0, 0);
                // The secret follows the scheme.
                let is_scheme = ["bearer", "basic"].iter().any(|scheme| text[..end].eq_ignore_ascii_case(scheme));
                0..if is_scheme { line_end(text, is_enclosed) } else { end }
            }
        };
        let secret = &text[range.clone()];
        (!secret.is_empty() && secret != REMOVED).then_some(range)
    }

    /// The end of a word from `at` on, after its first text in quotes. At 0, the word begins without quotes. A shell joins what
    /// follows: further texts in quotes, and text without them. `escapes` counts the backslashes of the first quote.
    fn joined(&self, mut at: usize, escapes: usize) -> usize {
        // As many backslashes precede a double quote of this word. One more is a backslash of the word.
        let escapes = escapes.max(usize::from(self.is_enclosed));
        let is_bare = at == 0;
        let (mut backslashes, mut is_closed, mut has_quotes) = (0, !is_bare, true);
        while let Some(c) = self.text[at..].chars().next() {
            let is_escaped = |backslash: usize| backslashes / backslash % 2 == 1;
            let ends = c == '\n'
                || c.is_whitespace() && !is_escaped(1) && !is_escaped(escapes + 1)
                || c == '"' && self.is_enclosed && !is_escaped(1)
                || is_closed && self.ends_before(&self.text[at..]);
            if ends {
                break;
            }
            at += c.len_utf8();
            let is_quote = c == '\'' && !is_escaped(1) || c == '"' && backslashes % (escapes + 1) == escapes;
            is_closed = has_quotes && is_quote && !is_escaped(escapes + 1);
            backslashes = if c == '\\' { backslashes + 1 } else { 0 };
            if is_closed {
                let (end, after) = quoted(&self.text[at..], c, if c == '"' { escapes } else { 0 });
                // A quote without its end is an apostrophe, or the end of the text around the word.
                has_quotes = !is_bare || after > end;
                is_closed = has_quotes;
                at += if has_quotes { after } else { 0 };
            }
        }
        at
    }

    /// Whether a delimiter follows the closing quote. After an equals sign or an option, it may also be a part of the value,
    /// unless it is the last part.
    fn ends_before(&self, rest: &str) -> bool {
        let after = rest.trim_start_matches([',', ';', '.', '}', ']', ')']);
        self.is_field && rest.starts_with([',', '}', ']'])
            || after.is_empty()
            || after.starts_with(char::is_whitespace)
            || self.is_enclosed && after.starts_with('"')
    }

    fn is_literal(&self) -> bool {
        let ends = |rest: &str| {
            rest.is_empty()
                || rest.starts_with(char::is_whitespace)
                || self.is_field && rest.starts_with([',', '}', ']'])
                || self.is_enclosed && rest.starts_with('"')
        };
        ["null", "true", "false"].iter().filter_map(|literal| self.text.strip_prefix(literal)).any(ends)
    }
}

/// The ends of a text after its opening quote: before and after the closing quote, otherwise both at the end of the line.
/// `escapes` counts the backslashes of the opening quote. A JSON text within a JSON text has one, and its escaped quotes have
/// three.
fn quoted(text: &str, quote: char, escapes: usize) -> (usize, usize) {
    let bytes = text.as_bytes();
    let is_quote = |at: usize| bytes.get(at).is_some_and(|byte| char::from(*byte) == quote);
    let (mut at, mut backslashes) = (0, 0);
    while at < bytes.len() && bytes[at] != b'\n' {
        if bytes[at] == b'\\' {
            backslashes += 1;
        } else if !is_quote(at) || backslashes % (2 * (escapes + 1)) != escapes {
            backslashes = 0;
        } else if escapes == 0 && is_quote(at + 1) {
            // In YAML, two quotes mean one.
            backslashes = 0;
            at += 1;
        } else {
            return (at - escapes, at + 1);
        }
        at += 1;
    }
    let end = at.min(bytes.len());
    (end, end)
}

/// The end of a value that has the rest of its line. The closing quote of a text around it also ends it.
fn line_end(text: &str, is_enclosed: bool) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if c == '\n' || c == '"' && is_enclosed && !is_escaped {
            return at;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// The end of the items of a list, after its opening bracket. Items may be texts in double quotes.
fn listed(text: &str) -> usize {
    let (mut at, mut escapes) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        if c == '\n' || c == ']' {
            break;
        }
        at += c.len_utf8();
        if c == '"' {
            at += quoted(&text[at..], '"', escapes).1;
        }
        escapes = if c == '\\' { escapes + 1 } else { 0 };
    }
    at
}

/// The double quotes of a line.
struct Quotes<'l> {
    line: &'l [u8],
    at: usize,
    is_escaped: bool,
    is_open: bool,
}

impl Quotes<'_> {
    /// Whether a place is within a text in double quotes. No place is before the previous one.
    fn are_open_at(&mut self, place: usize) -> bool {
        for byte in &self.line[self.at..place] {
            self.is_open ^= *byte == b'"' && !self.is_escaped;
            self.is_escaped = *byte == b'\\' && !self.is_escaped;
        }
        self.at = place;
        self.is_open
    }
}

/// The ends of such names, in order.
fn name_ends(lower: &str) -> Vec<usize> {
    let mut ends: Vec<usize> = NAMES
        .iter()
        .flat_map(|name| lower.match_indices(name).map(|(start, name)| start + name.len()))
        .filter(|end| !lower[*end..].starts_with(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c)))
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Whether the name of a field, in any case, marks its value as a secret.
pub fn names_a_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    NAMES.iter().any(|end| lower.ends_with(end))
}

fn is_option(before: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    before.rsplit(|c| !is_part(c)).next().is_some_and(|word| word.starts_with('-'))
}

/// Words that are secrets by their form.
fn words(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let word = |c: char| c.is_ascii_alphanumeric() || "+/=_-.$".contains(c);
        let start = rest.find(word).unwrap_or(rest.len());
        clean.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        clean.push_str(if is_secret(&rest[..end]) || clean.ends_with("Bearer ") && end > SHORTEST {
            REMOVED
        } else {
            &rest[..end]
        });
        rest = &rest[end..];
    }
    clean
}

fn is_secret(word: &str) -> bool {
    let mut parts = word.split(['=', '/']).map(|part| part.trim_end_matches('.'));
    parts.any(|part| is_bootstrap_token(part) || is_web_token(part)) || holds_hash(word) || holds_encoded_key(word)
}

/// Kubernetes' bootstrap tokens: `[a-z0-9]{6}.[a-z0-9]{16}`.
fn is_bootstrap_token(word: &str) -> bool {
    let fine = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    word.split_once('.').is_some_and(|(identifier, secret)| fine(identifier, 6) && fine(secret, 16))
}

/// RFC 7519: three parts in base64url, the first a JSON object.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    parts.len() == 3 && parts[0].starts_with("eyJ") && parts.iter().all(|part| part.len() > 8)
}

/// crypt(5): `$method$…$hash`.
fn holds_hash(word: &str) -> bool {
    const METHODS: [&str; 11] = ["$y$", "$gy$", "$7$", "$6$", "$5$", "$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$md5"];
    METHODS.iter().any(|method| word.find(method).is_some_and(|at| word.len() - at > 12))
}

/// Base64 of a PEM private key, as in a kubeconfig. A certificate may precede the key.
fn holds_encoded_key(word: &str) -> bool {
    // Base64 of `-----BEGIN `.
    let Some(at) = word.find("LS0tLS1CRUdJTi") else { return false };
    let encoded =
        word[at..].split(|c: char| !c.is_ascii_alphanumeric() && !"+/".contains(c)).next().unwrap_or_default();
    let whole = &encoded[..encoded.len() / 4 * 4];
    STANDARD.decode(whole).is_ok_and(|text| text.windows(11).any(|part| part == b"PRIVATE KEY"))
}

#[cfg(test)]
mod tests;
