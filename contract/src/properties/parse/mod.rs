//! One function from text to value for each form. Messages are written to be
//! read after the property's name: "gateway: \"10.0.0\" is not an IPv4 address".

pub mod addresses;
pub mod certificates;
pub mod join;
pub mod keys;
pub mod labels;
pub mod names;
pub mod numbers;
pub mod password;
pub mod routes;
pub mod secret;
pub mod ssh;
pub mod urls;

/// Longest excerpt of a value in a message, in characters.
const EXCERPT: usize = 60;

/// A value as it is shown in a message: in quotes, on one line, cut when long.
/// Not for secrets.
pub fn quoted(text: &str) -> String {
    let mut shown = String::from("\"");
    for (index, character) in text.chars().enumerate() {
        if index == EXCERPT {
            shown.push_str("...");
            break;
        }
        match character {
            '"' => shown.push('"'),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown.push('"');
    shown
}
