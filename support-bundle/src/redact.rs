//! Removes secrets from text: known values, and anything with the form of a secret. Removing too much is a nuisance, too little
//! a leak; so in doubt a text is removed. Independent of the source of the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::secret::Secret;

/// The replacement of a secret.
pub const REMOVED: &str = "[removed]";

/// Endings of names whose value is a secret, in lower case.
const NAMES: [&str; 16] = [
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
    "authorization",
];

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
        let text = private_keys(&text);
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

/// `name = value`, `name: value`, `"name": "value"`, `--name value` and the like, if the name marks the value as a secret.
fn named_values(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut clean = String::with_capacity(line.len());
    let mut done = 0;
    for name in name_ends(&lower) {
        if name < done {
            continue;
        }
        let value = &line[name..];
        // Between name and value: quotes, also escaped ones, blanks, one sign.
        let skip = |text: &str, wanted: &str| text.len() - text.trim_start_matches(|c| wanted.contains(c)).len();
        let mut at = skip(value, "\"'\\");
        let sign = skip(&value[at..], " \t");
        let Some(found) = value[at + sign..].chars().next() else { continue };
        at += match found {
            '=' | ':' => sign + 1,
            // An option's value follows a blank. So do the words of a sentence, which stay.
            _ if sign > 0 && is_option(&lower[..name]) => sign,
            _ => continue,
        };
        at += skip(&value[at..], " \t\"'\\");
        let quoted = value[..at].ends_with(['"', '\'']);
        let ends = |c: char| if quoted { "\"'\\\n".contains(c) } else { c.is_whitespace() || ",;}\"'&".contains(c) };
        let mut end = at + value[at..].find(ends).unwrap_or(value.len() - at);
        // In an Authorization header the secret follows the scheme.
        if !quoted && matches!(value[at..end].to_ascii_lowercase().as_str(), "bearer" | "basic") {
            end = at + value[at..].trim_end_matches('\n').len();
        }
        if matches!(&value[at..end], "" | "null" | "true" | "false" | REMOVED) || value[at..].starts_with(['{', '[']) {
            continue;
        }
        clean.push_str(&line[done..name + at]);
        clean.push_str(REMOVED);
        done = name + end;
    }
    clean.push_str(&line[done..]);
    clean
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
    before.rsplit([' ', '\t', '"', '\'']).next().is_some_and(|word| word.starts_with("--"))
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
    word.split('=').any(|part| is_bootstrap_token(part.trim_end_matches('.')) || is_web_token(part))
        || holds_hash(word)
        || holds_encoded_key(word)
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

/// Base64 of a PEM private key, as in a kubeconfig.
fn holds_encoded_key(word: &str) -> bool {
    // Base64 of `-----BEGIN `.
    let Some(at) = word.find("LS0tLS1CRUdJTi") else { return false };
    let encoded: Vec<u8> = word.as_bytes()[at..].iter().copied().filter(|byte| *byte != b'=').collect();
    let head = &encoded[..encoded.len().min(64) / 4 * 4];
    STANDARD.decode(head).is_ok_and(|text| text.windows(11).any(|part| part == b"PRIVATE KEY"))
}

#[cfg(test)]
mod tests;
