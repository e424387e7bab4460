//! Names of the files in an OVA.

/// The longest member name: the `name` field of a ustar header (POSIX.1-1988, `tar.h`) has 100 bytes.
const LONGEST: usize = 100;

/// A name that cannot be that of a file in an OVA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a file of an OVA: {reason}; choose another name")]
pub struct InvalidName {
    /// The name refused.
    pub name: String,
    /// The reason, as a clause about the name.
    pub reason: &'static str,
}

/// Checks a name that the product writes or imports: a plain file name. The tar header, the manifest's
/// `SHA256(name)= …` and the URI reference in `ovf:href` have to carry it unchanged. Spaces are allowed: VMware's tools
/// write them in `ovf:href`, though RFC 3986 wants them percent-encoded.
///
/// # Errors
/// If the name is empty, longer than 100 bytes, contains a directory, or has a character with a meaning in one of the
/// three.
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

/// Checks a name in another vendor's package: any relative path of printable characters (DSP0243 1.1 §5.3 and §7.1)
/// that does not leave its directory. The file is never created under it.
pub(crate) fn check_relative(name: &str) -> Result<(), InvalidName> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.starts_with('/') || name.split(['/', '\\']).any(|part| part == "..") {
        "it leaves the package"
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else {
        return Ok(());
    };
    Err(InvalidName { name: name.into(), reason })
}

/// A URI reference with its percent-encoded bytes decoded (RFC 3986 §2.1). `None` if nothing in it is encoded, or the
/// result is not UTF-8.
pub(crate) fn percent_decoded(href: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = href.as_bytes();
    while let [first, after @ ..] = rest {
        let encoded = after.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        match encoded.and_then(crate::digest::from_hex) {
            Some(byte) => {
                bytes.extend(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|decoded| decoded != href)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded_once() {
        for (href, expected) in [
            ("disk%201.vmdk", Some("disk 1.vmdk")),
            ("a%2520b", Some("a%20b")),
            ("%c3%A4.vmdk", Some("ä.vmdk")),
            ("url%24encoded%a-1.vmdk", Some("url$encoded%a-1.vmdk")),
            ("disk 1.vmdk", None),
            ("100%", None),
            ("%ff", None),
            ("%+1%é", None),
        ] {
            assert_eq!(percent_decoded(href).as_deref(), expected, "{href}");
        }
    }

    #[test]
    fn vendors_names_are_relative_paths() {
        for name in ["Kali 2016.2 x64 (Workshop).ovf", "subdir/data.vmdk", "测试-1.vmdk", ".hidden", &"x".repeat(200)]
        {
            check_relative(name).unwrap();
        }
        for name in ["", "/etc/passwd", "../a", "a/../b", "a\\..\\b", "a\nb"] {
            assert!(check_relative(name).is_err(), "{name:?}");
        }
    }

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
