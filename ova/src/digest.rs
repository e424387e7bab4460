//! Digests of manifests: SHA-256 in the product's packages, also SHA-1 and SHA-512 in other vendors'.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use aws_lc_rs::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512};

/// A SHA-256 digest (FIPS 180-4). Shown and parsed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Sha256 {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

/// A text that is not a SHA-256 digest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hexadecimal digits")]
pub struct ParseSha256Error;

impl FromStr for Sha256 {
    type Err = ParseSha256Error;

    fn from_str(text: &str) -> Result<Sha256, ParseSha256Error> {
        let bytes = from_hex(text).ok_or(ParseSha256Error)?;
        Ok(Sha256(bytes.try_into().map_err(|_| ParseSha256Error)?))
    }
}

/// A digest and how it was computed (FIPS 180-4). Shown as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) algorithm: &'static Algorithm,
    bytes: Vec<u8>,
}

impl Digest {
    /// An algorithm by its name in a manifest.
    pub(crate) fn algorithm(name: &str) -> Option<&'static Algorithm> {
        match name {
            "SHA1" => Some(&SHA1_FOR_LEGACY_USE_ONLY),
            "SHA256" | "SHA2-256" => Some(&SHA256),
            "SHA512" | "SHA2-512" => Some(&SHA512),
            _ => None,
        }
    }

    /// A digest in hexadecimal digits. `None` if the text has other characters, or another length than the algorithm's.
    pub(crate) fn parse(algorithm: &'static Algorithm, text: &str) -> Option<Digest> {
        let bytes = from_hex(text)?;
        (bytes.len() == algorithm.output_len()).then_some(Digest { algorithm, bytes })
    }

    /// The digest if it is SHA-256, the only one of that length.
    pub(crate) fn sha256(self) -> Option<Sha256> {
        self.bytes.try_into().ok().map(Sha256)
    }

    /// Whether two files with the same digest can be made.
    pub(crate) fn is_weak(&self) -> bool {
        *self.algorithm == SHA1_FOR_LEGACY_USE_ONLY
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.bytes))
    }
}

/// A digest that is being computed.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256 {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        Sha256(digest)
    }
}

/// Passes bytes on to `inner` and digests those that it accepted.
pub(crate) struct HashingWriter<W> {
    inner: W,
    hasher: Hasher,
}

impl<W: Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> HashingWriter<W> {
        HashingWriter { inner, hasher: Hasher::new() }
    }

    pub(crate) fn finish(self) -> Sha256 {
        self.hasher.finish()
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Digests what is read from `inner`.
pub(crate) struct HashingReader<R> {
    inner: R,
    context: Context,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R, algorithm: &'static Algorithm) -> HashingReader<R> {
        HashingReader { inner, context: Context::new(algorithm) }
    }

    pub(crate) fn finish(self) -> Digest {
        Digest { algorithm: self.context.algorithm(), bytes: self.context.finish().as_ref().into() }
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.context.update(&buffer[..read]);
        Ok(read)
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of hexadecimal digits of either case. `None` for other texts.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_the_examples_of_fips_180() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Sha256::of(b"abc").to_string(), expected);
        let mut writer = HashingWriter::new(io::sink());
        io::copy(&mut &b"abc"[..], &mut writer).unwrap();
        assert_eq!(writer.finish().to_string(), expected);
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let sha512 = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                      2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        for (name, expected) in [("SHA1", sha1), ("SHA256", expected), ("SHA512", sha512)] {
            let algorithm = Digest::algorithm(name).unwrap();
            let mut reader = HashingReader::new(&b"abc"[..], algorithm);
            io::copy(&mut reader, &mut io::sink()).unwrap();
            assert_eq!(Some(reader.finish()), Digest::parse(algorithm, &expected.to_uppercase()));
            assert_eq!(Digest::parse(algorithm, &expected[2..]), None);
        }
    }

    #[test]
    fn only_64_hexadecimal_digits_are_a_digest() {
        let digest = Sha256::of(b"");
        assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        for wrong in ["", "ab", &"g".repeat(64), &"a".repeat(63), &"a".repeat(66), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Sha256>(), Err(ParseSha256Error), "{wrong}");
        }
    }
}
