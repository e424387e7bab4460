//! Names of the files in an OVA.

/// The longest member name: the `name` field of a ustar header (POSIX.1-1988, `tar.h`) has 100 bytes.
const LONGEST: usize = 100;

/// A name that cannot be that of a file in an OVA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a file of an OVA: {reason}; choose a plain file name")]
pub struct InvalidName {
    /// The name refused.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Checks that `name` is a plain file name that the tar header, the manifest's
/// `SHA256(name)= …` and a URI reference (`ovf:href`) carry unchanged.
///
/// # Errors
/// When it is empty, longer than 100 bytes, has a directory in it, or has a
/// character that one of the three gives a meaning of its own.
pub(crate) fn check(name: &str) -> Result<(), InvalidName> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > LONGEST {
        "it has more than 100 bytes"
    } else if name.starts_with('.') {
        "it begins with a dot"
    } else if name.contains('/') || name.contains('\\') {
        "members lie side by side, without directories"
    } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-+~@ ,".contains(c)) {
        "only ASCII letters, digits, spaces and any of . _ - + ~ @ , are allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName { name: name.into(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass() {
        for name in ["kaas-control-plane-0.1.0.ovf", "disk 1.vmdk", "a", &"x".repeat(100)] {
            check(name).unwrap();
        }
    }

    #[test]
    fn names_with_a_meaning_are_refused() {
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "../etc/passwd",
            "a\\b",
            "a)= ",
            "a(b",
            "a\nb",
            "ä.vmdk",
            &"x".repeat(101),
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }
}
