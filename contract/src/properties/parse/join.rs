//! The values with which a worker joins its cluster: a bootstrap token and the hash of the cluster's CA.

use super::super::value::Problem;
use super::quoted;
use crate::codes;
use crate::secret::Secret;

/// How long a token is, in characters.
pub const TOKEN_LENGTH: usize = 6 + 1 + 16;

/// How long a hash is, in characters.
pub const HASH_LENGTH: usize = HASH.len() + 64;

/// The prefix of each hash: there is no other kind.
const HASH: &str = "sha256:";

/// A bootstrap token (Kubernetes, "Authenticating with Bootstrap Tokens"): the public half that names it, a dot, and the
/// secret one.
///
/// # Errors
/// It has another form. The problem says nothing of the text.
pub fn token(text: &str) -> Result<Secret, Problem> {
    let part = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match text.split_once('.') {
        Some((id, secret)) if part(id, 6) && part(secret, 16) => Ok(Secret::new(text.to_owned())),
        _ => Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            "the token has not the form of a bootstrap token",
            "Give 6 lower-case letters or digits, a dot and 16 more, as `kubeadm token create` prints them",
        )),
    }
}

/// The hash of a CA's public key (`--discovery-token-ca-cert-hash` of kubeadm), in lower case.
///
/// # Errors
/// It has another form.
pub fn authority_hash(text: &str) -> Result<String, Problem> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.strip_prefix(HASH).unwrap_or_default();
    if digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(lower);
    }
    Err(Problem::new(
        &codes::PROPERTY_MALFORMED,
        format!("{} is no SHA-256 of a public key", quoted(text)),
        "Give sha256: and 64 hexadecimal digits, as `kubeadm token create --print-join-command` prints them",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_two_halves_and_stay_secret() {
        assert_eq!(token("abcdef.0123456789abcdef").unwrap().expose().len(), TOKEN_LENGTH);
        for text in [
            "",
            "abcdef",
            "abcdef.0123456789abcde",
            "ABCDEF.0123456789abcdef",
            "abcde.f0123456789abcdef",
            "abcdef.0123456789abcdef ",
        ] {
            let problem = token(text).unwrap_err();
            assert_eq!(problem.code.code, "property.malformed", "{text}");
            assert!(text.len() < 6 || !problem.seen.contains(&text[..6]), "{problem:?}");
        }
    }

    #[test]
    fn hashes_are_of_sha256() {
        let digits = "7C2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866";
        let read = authority_hash(&format!("SHA256:{digits}")).unwrap();
        assert_eq!(read, format!("sha256:{}", digits.to_lowercase()));
        assert_eq!(read.len(), HASH_LENGTH);
        for text in [
            "",
            digits,
            "sha256:",
            &format!("sha1:{digits}"),
            &format!("sha256:{}", &digits[1..]),
            &format!("sha256:{digits}0"),
        ] {
            assert_eq!(authority_hash(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
    }
}
