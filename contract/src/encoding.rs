//! Lines and bytes in values of one line.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Replaces `\n` and `\r\n`, as forms of one line write line ends, by line ends.
pub(crate) fn unescape_lines(text: &str) -> String {
    text.replace("\\r", "").replace("\\n", "\n")
}

/// Decodes base64 of either alphabet, padded or not, without regard to white space.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let compact: String = text.split_whitespace().collect();
    let alphabet = if compact.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, config).decode(compact).ok()
}
