//! Join tokens: one for each worker, valid for a short time, and removed once it has joined or is given up.

use contract::secret::Secret;
use uuid::Uuid;

use super::pool::TOKEN_SECONDS;

/// A bootstrap token (Kubernetes, "Authenticating with Bootstrap Tokens").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its public half: six characters.
    pub id: String,
    /// Its secret half: sixteen characters.
    pub secret: Secret,
    /// When it expires, in seconds of Unix time.
    pub expires: u64,
    pub machine: String,
}

impl Token {
    /// A new one, valid `timeout_factor` times as long as usual.
    pub fn new(machine: &str, now: u64, timeout_factor: u32) -> Self {
        Self {
            id: random(6),
            secret: Secret::new(random(16)),
            expires: now + TOKEN_SECONDS * u64::from(timeout_factor),
            machine: machine.to_owned(),
        }
    }

    /// Both halves, as a worker is given them.
    pub fn joined(&self) -> Secret {
        Secret::new(format!("{}.{}", self.id, self.secret.expose()))
    }
}

/// Characters of a token, each as likely as any other.
fn random(length: usize) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = String::new();
    while text.len() < length {
        // Of a random UUID the bytes 6 and 8 are not random as a whole (RFC 9562, section 5.4).
        let bytes = Uuid::new_v4().into_bytes();
        let random = bytes.iter().enumerate().filter(|(at, byte)| ![6, 8].contains(at) && **byte < 252);
        text.extend(random.map(|(_, byte)| char::from(ALPHABET[usize::from(byte % 36)])));
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_kubeadms_form_and_stays_hidden() {
        let token = Token::new("w1", 100, 1);
        let other = Token::new("w1", 100, 5);
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        assert!(token.id.len() == 6 && token.secret.expose().len() == 16);
        assert!(is_plain(&token.id) && is_plain(token.secret.expose()));
        assert_eq!(token.joined().expose(), format!("{}.{}", token.id, token.secret.expose()));
        assert_eq!((token.expires, other.expires), (100 + TOKEN_SECONDS, 100 + 5 * TOKEN_SECONDS));
        assert_ne!((token.id.as_str(), token.secret.expose()), (other.id.as_str(), other.secret.expose()));
        assert!(!format!("{token:?}").contains(token.secret.expose()));
    }
}
