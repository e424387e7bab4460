//! Bytes in hexadecimal.

/// Two digits a byte, in lower case.
pub fn lower(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(lower(&[0x00, 0x0a, 0xff]), "000aff");
        assert_eq!(lower(&[]), "");
    }
}
