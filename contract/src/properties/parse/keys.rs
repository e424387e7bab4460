//! Public keys of operators: what something is sealed to, and who gets in.

use super::super::value::Problem;
use crate::codes;
use crate::deployer;
use crate::recovery::{Error, PublicKey};

/// The operator's public key, as one line of base64. Messages never repeat the text: it may be a private key.
pub fn recovery(text: &str) -> Result<String, Problem> {
    text.parse::<PublicKey>().map(|key| key.to_string()).map_err(|error| match error {
        Error::Private => Problem::new(
            &codes::RECOVERY_KEY_PRIVATE,
            "it is a private key",
            "Give the public key; a reader of the private one can read the Secrets of snapshots, so make another pair",
        ),
        other => Problem::new(
            &codes::PROPERTY_MALFORMED,
            other.to_string(),
            "Give the line that `kaas recovery-key new` prints",
        ),
    })
}

/// The deployer's public key, as one line of base64, or two such keys with a comma between. Messages never repeat the text: it may be a private key.
pub fn deployer(text: &str) -> Result<String, Problem> {
    deployer::public_keys(text).map(|keys| deployer::written(&keys)).map_err(|error| match error {
        deployer::Error::Private => Problem::new(
            &codes::DEPLOYER_KEY_PRIVATE,
            "it is a private key",
            "Give the public key; a reader of the private one can become the cluster's administrator, so make another pair",
        ),
        other => Problem::new(
            &codes::PROPERTY_MALFORMED,
            other.to_string(),
            "Give what \"openssl pkey -in key.pem -pubout\" prints, with line ends written as \\n, and a comma between two keys",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployer_keys_are_one_line_and_never_private() {
        let public = include_str!("../../deployer/fixtures/key.pub");
        let private = include_str!("../../deployer/fixtures/key.pem");
        let line: String = public.lines().filter(|line| !line.starts_with('-')).collect();
        assert_eq!(deployer(&public.replace('\n', "\\n")), Ok(line));
        let problem = deployer(private).unwrap_err();
        assert_eq!(problem.code.code, "deployer-key.private");
        assert!(!format!("{problem:?}").contains(private.lines().nth(1).unwrap()));
        assert_eq!(deployer(PUBLIC).unwrap_err().code.code, "property.malformed");
    }

    const PUBLIC: &str = include_str!("../../recovery/fixtures/key.pub");
    const PRIVATE: &str = include_str!("../../recovery/fixtures/key.pem");

    #[test]
    fn recovery_keys_are_one_line_and_never_private() {
        let line = PUBLIC.lines().nth(1).unwrap();
        assert_eq!(recovery(PUBLIC).as_deref(), Ok(line));
        assert_eq!(recovery(line).as_deref(), Ok(line));
        let problem = recovery(PRIVATE).unwrap_err();
        assert_eq!(problem.code.code, "recovery-key.private");
        assert!(!format!("{problem:?}").contains(PRIVATE.lines().nth(1).unwrap()));
        assert_eq!(recovery("ssh-ed25519 AAAA").unwrap_err().code.code, "property.malformed");
    }
}
