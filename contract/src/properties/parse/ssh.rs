//! Public SSH keys in `authorized_keys` format (sshd(8)), without options.

use super::super::value::Problem;
use crate::codes;
use crate::encoding::{base64, unescape_lines};

/// Fewest bits of an RSA key: what OpenSSH asks for by default and more.
const RSA_BITS: usize = 2048;

/// Key types that sshd of the image accepts.
const TYPES: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// Key types that are known, but too weak.
const WEAK: &[&str] = &["ssh-dss", "ssh-rsa1"];

/// One or more keys, each as `type data comment`. Line ends, a written `\n` or
/// spaces separate them: XML turns line ends in attributes into spaces. The
/// whole text may be in base64.
///
/// # Errors
/// The problems of all keys.
pub fn keys(text: &str) -> Result<Vec<String>, Vec<Problem>> {
    if text.contains("PRIVATE KEY") {
        return Err(vec![Problem::new(
            &codes::SSH_KEY_PRIVATE,
            "a private key was given; it should no longer be used",
            "Give the public key: the content of the .pub file next to the private one",
        )]);
    }
    if !text.trim().contains(char::is_whitespace) && !text.contains("\\n") {
        let inner = base64(text).and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(inner) = inner.filter(|inner| inner.contains(' ')) {
            return keys(&inner);
        }
    }
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    for (index, entry) in entries(text).into_iter().enumerate() {
        match key(&entry) {
            Ok(key) if !keys.contains(&key) => keys.push(key),
            Ok(_) => {}
            Err((code, why)) => problems.push(Problem::new(
                code,
                format!("key {} {why}", index + 1),
                "Give the unchanged content of an OpenSSH .pub file, without options before the key's type",
            )),
        }
    }
    if keys.is_empty() && problems.is_empty() {
        problems.push(Problem::new(&codes::SSH_KEY_MALFORMED, "there is no key in it", "Give a key or leave it empty"));
    }
    if problems.is_empty() { Ok(keys) } else { Err(problems) }
}

/// The words of each key: a key begins on a new line or with the name of a type.
fn entries(text: &str) -> Vec<Vec<String>> {
    let mut text = unescape_lines(text);
    for name in TYPES.iter().chain(WEAK) {
        text = text.replace(&format!(",{name} "), &format!("\n{name} "));
    }
    let mut entries: Vec<Vec<String>> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = Vec::new();
        for word in line.split_whitespace() {
            let names_type = TYPES.contains(&word) || WEAK.contains(&word);
            if names_type && !words.is_empty() {
                entries.push(std::mem::take(&mut words));
            }
            words.push(word.to_owned());
        }
        entries.push(words);
    }
    entries
}

fn key(words: &[String]) -> Result<String, (&'static codes::Code, String)> {
    let malformed = |why: &str| (&codes::SSH_KEY_MALFORMED, why.to_owned());
    let name = words.first().map(String::as_str).unwrap_or_default();
    if WEAK.contains(&name) {
        return Err((&codes::SSH_KEY_WEAK, format!("is of type {name}, which is too weak")));
    }
    if !TYPES.contains(&name) {
        return Err(malformed("does not begin with a known key type such as ssh-ed25519"));
    }
    let data = words.get(1).ok_or_else(|| malformed("has a type, but no data"))?;
    let blob = base64(data).ok_or_else(|| malformed("has data that is not base64"))?;
    let fields = fields(&blob).ok_or_else(|| malformed("has data that is cut off or damaged"))?;
    if fields.first().copied() != Some(name.as_bytes()) {
        return Err(malformed(&format!("says {name}, but its data is of another type")));
    }
    let curve = |name: &str| name.split("nistp").nth(1).and_then(|rest| rest.split('@').next()).map(str::to_owned);
    let sound = match (name, &fields[1..]) {
        ("ssh-ed25519", [point]) | ("sk-ssh-ed25519@openssh.com", [point, _]) => point.len() == 32,
        ("ssh-rsa", [exponent, modulus]) => {
            let bits = bits(modulus);
            if bits < RSA_BITS {
                return Err((&codes::SSH_KEY_WEAK, format!("is an RSA key of {bits} bits, fewer than {RSA_BITS}")));
            }
            !exponent.is_empty()
        }
        (_, [named, point, ..]) => {
            let size = curve(name).and_then(|bits| bits.parse::<usize>().ok()).map(|bits| bits.div_ceil(8));
            let points = if name.starts_with("sk-") { 4 } else { 3 };
            fields.len() == points
                && named.strip_prefix(b"nistp") == curve(name).as_deref().map(str::as_bytes)
                && point.first() == Some(&4)
                && size.is_some_and(|size| point.len() == 2 * size + 1)
        }
        _ => false,
    };
    if !sound {
        return Err(malformed("has data that does not fit its type"));
    }
    let comment = words[2..].join(" ");
    if comment.chars().any(char::is_control) {
        return Err(malformed("has control characters in its comment"));
    }
    Ok(format!("{name} {data} {comment}").trim_end().to_owned())
}

/// The length-prefixed strings that make up a public key (RFC 4253, section 6.6).
fn fields(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let (field, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        fields.push(field);
        blob = rest;
    }
    Some(fields)
}

/// Bits of a positive multiple-precision integer (RFC 4251, section 5).
fn bits(number: &[u8]) -> usize {
    let significant = &number[number.iter().take_while(|byte| **byte == 0).count()..];
    significant.first().map_or(0, |first| significant.len() * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// A key whose data holds these fields.
    fn made(name: &str, fields: &[&[u8]]) -> String {
        let mut blob = Vec::new();
        for field in [name.as_bytes()].iter().chain(fields) {
            blob.extend((field.len() as u32).to_be_bytes());
            blob.extend(*field);
        }
        format!("{name} {} admin@site", BASE64_STANDARD.encode(blob))
    }

    fn ed25519() -> String {
        made("ssh-ed25519", &[&[7; 32]])
    }

    fn code(text: &str) -> &'static str {
        keys(text).unwrap_err()[0].code.code
    }

    #[test]
    fn keys_made_by_ssh_keygen_are_accepted() {
        // ssh-keygen -t TYPE: public halves only; the private ones were thrown away.
        for text in include_str!("../fixtures/ssh-keys.pub").lines() {
            assert_eq!(keys(text).unwrap(), [text]);
        }
        assert_eq!(keys(include_str!("../fixtures/ssh-keys.pub")).unwrap().len(), 5);
    }

    #[test]
    fn several_keys_may_be_joined_in_each_way() {
        let (one, two) = (ed25519(), made("ssh-ed25519", &[&[8; 32]]));
        let expected = [one.clone(), two.clone()];
        for separator in ["\n", "\\n", "\\r\\n", " ", ",", "\n# comment\n\n"] {
            assert_eq!(keys(&format!("{one}{separator}{two}")).unwrap(), expected, "{separator:?}");
        }
        assert_eq!(keys(&BASE64_STANDARD.encode(format!("{one}\n{two}\n"))).unwrap(), expected);
        assert_eq!(keys(&format!("{one}\n{one}")).unwrap(), [one]);
    }

    #[test]
    fn each_bad_key_has_its_code() {
        assert_eq!(code("-----BEGIN OPENSSH PRIVATE KEY----- b3Blbn"), "ssh-key.private");
        assert_eq!(code(&made("ssh-dss", &[&[1; 128]])), "ssh-key.weak");
        assert_eq!(code(&made("ssh-rsa", &[&[1, 0, 1], &[0x7f; 128]])), "ssh-key.weak");
        for text in [
            "hello",
            "ssh-ed25519",
            "ssh-ed25519 !!!!",
            &ed25519()[..40],
            &ed25519().replace("ssh-ed25519 ", "ssh-rsa "),
            &made("ssh-ed25519", &[&[7; 31]]),
            &made("ssh-ed25519", &[&[7; 32], &[1]]),
            &made("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 65]]),
            &made("ecdsa-sha2-nistp256", &[b"nistp256", &[4; 64]]),
            &format!("no-pty {}", ed25519()),
            "# only a comment",
        ] {
            assert_eq!(code(text), "ssh-key.malformed", "{text}");
        }
    }

    #[test]
    fn all_bad_keys_are_reported() {
        assert_eq!(keys(&format!("hello\n{}\nssh-rsa x", ed25519())).unwrap_err().len(), 2);
    }
}
