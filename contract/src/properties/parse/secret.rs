//! The deployment secret, and how its strength is judged.
//!
//! Strength depends on how a secret was made, which its text does not show. The
//! checks accept values of a random generator and refuse invented ones:
//!
//! 1. *Capacity*: the number of characters times the bits of one character in
//!    the smallest fitting alphabet. Digits have 3.32 bits, hexadecimal 4,
//!    letters of one case 4.70, base32 5, letters of one case with digits 5.17.
//!    Base64 has 6 bits, printable characters 6.57. Separators inside
//!    hexadecimal are not counted, and a UUID counts 122. At least 128 bits are
//!    needed.
//! 2. *Regularity*: a character that repeats an earlier sequence counts
//!    nothing, one that continues a run (`aaa`, `123`, `qwe`) one bit. The sum
//!    must be at least 80 bits.
//! 3. *Words*: text that reads like words counts 13 bits a different word (a
//!    Diceware word has 12.9), so that ten random words are enough.
//!
//! Measured with 200,000 random values each: of 32 hexadecimal digits and of 32
//! base64 characters none was refused, of 22 base64 characters 15.

use std::collections::HashSet;

use super::super::value::Problem;
use crate::codes;
use crate::secret::Secret;

/// Most characters.
pub const LONGEST: usize = 1024;

/// Bits that are needed.
pub const NEEDED: f64 = 128.0;

/// Bits that must be left after regularities: a random value of 128 bits is as
/// good as never judged lower.
const NEEDED_IRREGULAR: f64 = 80.0;

/// A deployment secret, exactly as it was given.
pub fn secret(text: &str) -> Result<Secret, Problem> {
    let action = "Use the output of \"openssl rand -hex 16\" on every node";
    if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
        return Err(Problem::new(
            &codes::SECRET_INVALID,
            format!("the secret is longer than {LONGEST} characters or holds control characters"),
            action,
        ));
    }
    match judge(text) {
        Ok(()) => Ok(Secret::new(text.to_owned())),
        Err(why) => Err(Problem::new(&codes::SECRET_WEAK, format!("the secret {why}"), action)),
    }
}

/// Judges the strength of a secret as the module's description says.
///
/// # Errors
/// Why it is too weak, to be read after "the secret".
pub fn judge(text: &str) -> Result<(), &'static str> {
    let characters: Vec<char> = significant(text);
    let (per_character, hexadecimal) = alphabet(&characters);
    let capacity = if is_uuid(text) { 122.0 } else { characters.len() as f64 * per_character };
    if capacity < NEEDED {
        return Err("is too short for 128 bits");
    }
    if !hexadecimal && word_bits(text).is_some_and(|bits| bits < NEEDED) {
        return Err("reads like words and is judged to hold less than 128 bits");
    }
    if irregular_bits(&characters, per_character) < NEEDED_IRREGULAR {
        return Err("repeats itself or counts on and is judged to hold less than 128 bits");
    }
    Ok(())
}

/// The characters that count: hexadecimal digits without what separates them,
/// base64 without its padding.
fn significant(text: &str) -> Vec<char> {
    let text = text.trim().trim_end_matches('=');
    let bare: Vec<char> = text.chars().filter(|c| !" -:_.,".contains(*c)).collect();
    if bare.iter().all(char::is_ascii_hexdigit) { bare } else { text.chars().collect() }
}

/// Bits per character of the smallest fitting alphabet, and whether that is hexadecimal.
fn alphabet(characters: &[char]) -> (f64, bool) {
    let all = |test: fn(&char) -> bool| characters.iter().all(test);
    let size: f64 = if all(char::is_ascii_digit) {
        10.0
    } else if all(char::is_ascii_hexdigit) {
        return (4.0, true);
    } else if all(char::is_ascii_lowercase) || all(char::is_ascii_uppercase) {
        26.0
    } else if all(|c| c.is_ascii_uppercase() || ('2'..='7').contains(c))
        || all(|c| c.is_ascii_lowercase() || ('2'..='7').contains(c))
    {
        32.0
    } else if all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        || all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    {
        36.0
    } else if all(|c| c.is_ascii_alphanumeric() || "+/-_".contains(*c)) {
        64.0
    } else {
        95.0
    };
    (size.log2(), false)
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.trim().split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Bits of the characters that neither repeat nor go on in a run.
fn irregular_bits(characters: &[char], per_character: f64) -> f64 {
    let lower: Vec<char> = characters.iter().map(char::to_ascii_lowercase).collect();
    let mut seen = HashSet::new();
    let mut bits = 0.0;
    for index in 0..lower.len() {
        let repeats = index >= 2 && !seen.insert([lower[index - 2], lower[index - 1], lower[index]]);
        let runs = index >= 2 && near(lower[index - 2], lower[index - 1]) && near(lower[index - 1], lower[index]);
        bits += match (repeats, runs) {
            (true, _) => 0.0,
            (_, true) => 1.0,
            _ => per_character,
        };
    }
    bits
}

/// Whether two characters are the same, or neighbours in the alphabet or on a keyboard.
fn near(one: char, other: char) -> bool {
    const ROWS: [&str; 3] = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
    let on_keyboard = ROWS.iter().any(|row| match (row.find(one), row.find(other)) {
        (Some(one), Some(other)) => one.abs_diff(other) == 1,
        _ => false,
    });
    (one as u32).abs_diff(other as u32) <= 1 || on_keyboard
}

/// The commonest pairs of letters in English. German and French share enough of
/// them: of random letters one pair in ten is among them, of words half.
const COMMON_PAIRS: &str = "\
th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se
le sa si ar ve ra ld ur ro me ic ri co li io ce ll ma ne om el ch la ec ho ss us ac ot us pe
ow ee ge wo sh em op ck da";

/// Bits of a text as words, if it reads like words. Most of it are letters, in
/// stretches of one case with the common pairs. A stretch may begin with a capital.
fn word_bits(text: &str) -> Option<f64> {
    let words = words(text);
    let letters: usize = words.iter().map(|word| word.chars().count()).sum();
    let pairs: Vec<&[u8]> =
        words.iter().filter(|word| word.is_ascii()).flat_map(|word| word.as_bytes().windows(2)).collect();
    let known: HashSet<&[u8]> = COMMON_PAIRS.split_whitespace().map(str::as_bytes).collect();
    let common = pairs.iter().filter(|pair| known.contains(*pair)).count();
    let length = text.chars().count();
    let wordlike = letters * 10 >= length * 6
        && letters * 2 >= words.len() * if text.contains(' ') { 7 } else { 8 }
        && pairs.len() >= 12
        && common * 10 >= pairs.len() * 4;
    if !wordlike {
        return None;
    }
    let distinct: HashSet<&String> = words.iter().collect();
    // Words that nothing separates are counted as if ten letters made one.
    let of_words: usize = distinct.iter().map(|word| word.chars().count().div_ceil(10) * 13).sum();
    let of_digits = text.chars().filter(char::is_ascii_digit).count() as f64 * 10f64.log2();
    Some(of_words as f64 + of_digits)
}

/// The stretches of letters, in lower case, cut where a capital follows a small letter.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before: Option<char> = None;
    for character in text.chars() {
        if character.is_alphabetic() {
            let begins = !before.is_some_and(char::is_alphabetic)
                || (character.is_uppercase() && before.is_some_and(char::is_lowercase));
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(character.to_lowercase());
            }
        }
        before = Some(character);
    }
    words
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand;
    use base64::Engine;
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn random_values_of_128_bits_pass() {
        for _ in 0..200 {
            let mut bytes = [0; 16];
            rand::fill(&mut bytes).unwrap();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(judge(&hex), Ok(()), "{hex}");
            assert_eq!(judge(&hex.to_uppercase()), Ok(()), "{hex}");
        }
        // Longer base64 than the shortest accepted: that one looks like words too often for a quiet test.
        for _ in 0..200 {
            let mut bytes = [0; 32];
            rand::fill(&mut bytes).unwrap();
            for text in [BASE64_STANDARD.encode(bytes), BASE64_URL_SAFE_NO_PAD.encode(bytes)] {
                assert_eq!(judge(&text), Ok(()), "{text}");
            }
        }
    }

    #[test]
    fn strong_values_of_each_kind_pass() {
        for text in [
            "kJ8vQ2xW9mZ4pL7tR3yB6n",
            "kJ8vQ2xW9mZ4pL7tR3yB6n==",
            "9f:86:d0:81:88:4c:7d:65:9a:2f:ea:a0:c5:5a:d0:15",
            "x7$Qm!p2<Wz&9%rT'v\"B",
            "4829 1048 5571 3390 2284 7715 6092 8346 1957 403",
            "abandon ability violin tortoise mechanic gravel umbrella nephew satisfy quantum",
            "zürich-µ7$Qm!p2Wz9rT4vB8",
        ] {
            assert_eq!(judge(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn short_values_are_refused() {
        for text in [
            "",
            "a",
            "hunter2",
            "9f86d081884c7d659a2feaa0c55ad01",
            "kJ8vQ2xW9mZ4pL7tR3yB6",
            "482910485571339022847715609283461957",
            "550e8400-e29b-41d4-a716-446655440000",
        ] {
            assert_eq!(judge(text), Err("is too short for 128 bits"), "{text}");
        }
    }

    #[test]
    fn regular_values_are_refused() {
        for text in [
            &"a".repeat(64),
            "00000000000000000000000000000000",
            "0123456789abcdef0123456789abcdef",
            "deadbeefdeadbeefdeadbeefdeadbeef",
            "aabbccddeeff00112233445566778899",
            "abcdefghijklmnopqrstuvwxyz0123456789",
            "qwertyuiopasdfghjklzxcvbnm1234567890",
            &"Xk4!".repeat(12),
        ] {
            assert!(judge(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_are_refused() {
        for text in [
            "correct horse battery staple",
            "MyVerySecretKubernetesClusterPassword2026!",
            "the quick brown fox jumps over the lazy dog",
            "pleasechangethisdeploymentsecretnow",
            "kubernetes-cluster-secret-production-01",
            "Passwort fuer unseren Cluster im Keller",
            "DasIstEinGeheimnisVonDerFirmaMeier2024",
            "PasswordPasswordPasswordPassword",
        ] {
            assert!(judge(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_stays_unchanged_and_out_of_messages() {
        let text = " x7$Qm!p2<Wz&9%rT'v\"B ü ";
        assert_eq!(secret(text).unwrap().expose(), text);
        for text in ["hunter2", &"Xk4!".repeat(300), "tab\tin it 9f86d081884c7d659a2feaa0c55ad015"] {
            assert!(!format!("{:?}", secret(text).unwrap_err()).contains(text));
        }
    }
}
