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

/// Turns line ends that were written as `\n` or `\r\n`, for forms of one line,
/// into line ends.
pub(crate) fn unescape_lines(text: &str) -> String {
    text.replace("\\r", "").replace("\\n", "\n")
}

/// Decodes base64 of either alphabet, padded or not, ignoring white space.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    use base64::alphabet;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let compact: String = text.split_whitespace().collect();
    let alphabet = if compact.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, config).decode(compact).ok()
}
