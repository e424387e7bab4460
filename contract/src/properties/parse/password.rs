//! Hashes of passwords in the form of crypt(5). The password itself is never
//! accepted, and no message repeats what was given.

use super::super::value::Problem;
use crate::codes;

/// A method of crypt(5): how its hashes begin, and how long the last part is.
struct Method {
    prefix: &'static str,
    /// Characters after the last `$`.
    digest: usize,
    /// Parts between prefix and digest, separated by `$`: parameters and salt.
    parts: usize,
    /// Whether `rounds=n$` may precede the salt.
    rounds: bool,
}

/// The accepted methods (crypt(5) of libxcrypt, "AVAILABLE HASHING METHODS").
const METHODS: &[Method] = &[
    Method { prefix: "$y$", digest: 43, parts: 2, rounds: false },
    Method { prefix: "$gy$", digest: 43, parts: 2, rounds: false },
    Method { prefix: "$7$", digest: 43, parts: 1, rounds: false },
    Method { prefix: "$2b$", digest: 53, parts: 1, rounds: false },
    Method { prefix: "$2a$", digest: 53, parts: 1, rounds: false },
    Method { prefix: "$2y$", digest: 53, parts: 1, rounds: false },
    Method { prefix: "$6$", digest: 86, parts: 1, rounds: true },
    Method { prefix: "$5$", digest: 43, parts: 1, rounds: true },
];

/// Too fast to resist guessing, or not a standard method: named in messages.
const REFUSED: &[(&str, &str)] =
    &[("$1$", "MD5"), ("$md5", "SunMD5"), ("$sha1$", "SHA-1"), ("$3$", "NT hash"), ("_", "extended DES")];

/// Longest hash of any method (CRYPT_OUTPUT_SIZE of libxcrypt).
const LONGEST: usize = 384;

/// A crypt(5) hash.
pub fn hash(text: &str) -> Result<String, Problem> {
    let action = "Give the output of \"mkpasswd -m yescrypt\" or \"openssl passwd -6\"";
    let problem = |code, seen: &str| Err(Problem::new(code, seen, action));
    if let Some((_, name)) = REFUSED.iter().find(|(prefix, _)| text.starts_with(prefix)) {
        return problem(&codes::PASSWORD_METHOD, &format!("the hash is a {name} one, which is not accepted"));
    }
    let Some(method) = METHODS.iter().find(|method| text.starts_with(method.prefix)) else {
        return match text.strip_prefix('$').and_then(|rest| rest.split_once('$')) {
            Some((name, _)) if name.len() <= 8 && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                problem(&codes::PASSWORD_METHOD, "the hash is of a method that is not accepted")
            }
            _ => problem(
                &codes::PASSWORD_PLAIN,
                "the value is not a hash; if it is a password, it should no longer be used",
            ),
        };
    };
    let parts: Vec<&str> = text[method.prefix.len()..].split('$').collect();
    let (digest, before) = (parts[parts.len() - 1], &parts[..parts.len() - 1]);
    let characters = |part: &&str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte));
    let rounds = |part: &str| part.strip_prefix("rounds=").is_some_and(|number| number.parse::<u32>().is_ok());
    // SHA-2 methods may say their rounds before the salt.
    let salt = match before {
        [first, salt @ ..] if method.rounds && rounds(first) => salt,
        all => all,
    };
    let complete = method.digest == digest.len()
        && salt.len() == method.parts
        && salt.iter().all(|part| !part.is_empty())
        && text.len() <= LONGEST;
    let clean = characters(&digest) && salt.iter().all(characters);
    if complete && clean {
        return Ok(text.to_owned());
    }
    problem(&codes::PASSWORD_MALFORMED, "the hash is cut off or holds characters that a hash never has")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_made_by_libxcrypt_are_accepted() {
        for text in [
            "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$xepEX7DgsiGhAJPJyekJSrQ8hX9NhEaSi66Ij4USOM2",
            "$gy$j9T$F5Jx5fExrKuPp53xLKQ..1$d.HZx5jc/tevH2zexKbmMJ4ujuF9VUGduvE8ZdHAwt4",
            "$7$CU..../....2Q9obwLhin8qvQl6sisAO/$MdWZ9/dkgGwORbaDajWhj575Z.BsmZPl9Fh7FU8wPv2",
            "$2b$05$abcdefghijklmnopqrstuuMceFj4VbmHOj8C7PetMxzZkwre/z.Ri",
            "$6$saltstring$ZaKVNWbveiGcCq16EkwiSQlt9qdrq2SpD7228mu4mx8wJCGfB34lPhtxQVdO6NHC4yEVlMJBxcIh3g6eko7AB.",
            "$6$rounds=10000$saltstringsaltst$JSNuzRdcZ58p6kb8O6xpv3GsXlCLBOibUvGq/C3i5iEcBTx7zpzR1/ZTBR1n20/v9CtRW9I/TxcSooInTiV4L.",
            "$5$saltstring$uzdVN3XcAOYKRlFzn8F5/iMpo99aMD8sXQTYY9P10Z8",
        ] {
            assert_eq!(hash(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn each_bad_hash_has_its_code() {
        for (text, code) in [
            ("hunter2", "console-password-hash.plain"),
            ("$ecret", "console-password-hash.plain"),
            ("pa$$w0rd", "console-password-hash.plain"),
            ("rqXexS6ZhobKA", "console-password-hash.plain"),
            ("$1$abcdefgh$G9GTe5rFtx2cuh4WnFy5p/", "console-password-hash.method"),
            ("_J9..rasmBYk8r9AiWNc", "console-password-hash.method"),
            ("$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA", "console-password-hash.method"),
            ("$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMH", "console-password-hash.malformed"),
            ("$6$$", "console-password-hash.malformed"),
            ("$6$", "console-password-hash.malformed"),
            (
                "$6$sa:lt$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjlO/O817G3uBnIFNjnQJuesI68OTLiBFdcbYEdFCoEOfaS35inz1",
                "console-password-hash.malformed",
            ),
            (
                "$6$rounds=x$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjlO/O817G3uBnIFNjnQJuesI68OTLiBFdcbYEdFCoEOfaS35inz1",
                "console-password-hash.malformed",
            ),
            ("$2b$05$abc", "console-password-hash.malformed"),
        ] {
            let problem = hash(text).unwrap_err();
            assert_eq!(problem.code.code, code, "{text}");
            assert!(!problem.seen.contains(text) && !problem.action.contains(text));
        }
    }
}
